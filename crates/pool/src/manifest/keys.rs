//! The JSON Schema of a manifest and, made from it, the reference of its keys.

use schemars::{Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::file::ManifestFile;

/// The JSON Schema (draft 2020-12) of a manifest, with the keys of the given node types: `(type, schema of its keys)`.
/// An agent of another type may have any further key, since its program decides.
///
/// Without node types it is what stands in `schemas/manifest.schema.json` of this crate.
#[must_use]
pub fn schema(node_types: &[(&str, Schema)]) -> Schema {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ManifestFile>();
    let root = schema.ensure_object();
    let mut definitions = match root.remove("$defs") {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let mut variants = Vec::new();
    for (name, of_type) in node_types {
        let mut of_type = of_type.clone();
        // Definitions live at the root, where `$ref` looks for them.
        if let Some(Value::Object(more)) = of_type.remove("$defs") {
            definitions.extend(more);
        }
        for key in ["$schema", "title", "additionalProperties"] {
            of_type.remove(key);
        }
        variants.push(json!({
            "if": { "properties": { "type": { "const": name } }, "required": ["type"] },
            "then": of_type,
        }));
    }
    if !variants.is_empty()
        && let Some(Value::Object(agent)) = definitions.get_mut("Agent")
    {
        agent.insert("allOf".to_owned(), Value::Array(variants));
    }
    root.insert("$defs".to_owned(), Value::Object(definitions));
    schema
}

/// One key of a manifest, for a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyReference {
    /// Where it stands, for example `teams.NAME.mode` or `workers[].name`.
    pub path: String,
    /// What it takes, in words.
    pub takes: String,
    /// What it is when it is left out, as JSON; `None` where the meaning says so, and for keys that cannot be left out.
    pub default: Option<String>,
    /// Whether it cannot be left out.
    pub required: bool,
    /// What it means.
    pub meaning: String,
}

/// Every key of a manifest in the order of the schema; with the keys of the given node types.
#[must_use]
pub fn keys(node_types: &[(&str, Schema)]) -> Vec<KeyReference> {
    let schema = schema(node_types).to_value();
    let mut out = Vec::new();
    walk(&schema, &schema, "", &mut out);
    out
}

fn walk(root: &Value, at: &Value, path: &str, out: &mut Vec<KeyReference>) {
    let at = target(root, at);
    let required: Vec<&str> =
        at["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, key) in at["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let aimed = target(root, key);
        let meaning =
            [key, aimed].into_iter().find_map(|schema| schema["description"].as_str()).unwrap_or_default();
        out.push(KeyReference {
            takes: takes(root, key),
            default: key.get("default").filter(|default| !default.is_null()).map(Value::to_string),
            required: required.contains(&name.as_str()),
            meaning: meaning.split_whitespace().collect::<Vec<_>>().join(" "),
            path: path.clone(),
        });
        below(root, key, &path, out);
    }
    for variant in at["allOf"].as_array().into_iter().flatten() {
        let name = variant["if"]["properties"]["type"]["const"].as_str().unwrap_or_default();
        walk(root, &variant["then"], &format!("{path}(type: {name})"), out);
    }
}

/// The keys below one key: its own, those of its items and those of its named entries.
fn below(root: &Value, key: &Value, path: &str, out: &mut Vec<KeyReference>) {
    let key = target(root, key);
    walk(root, key, path, out);
    if key["items"].is_object() {
        below(root, &key["items"], &format!("{path}[]"), out);
    }
    if key["additionalProperties"].is_object() {
        below(root, &key["additionalProperties"], &format!("{path}.NAME"), out);
    }
    for alternative in key["anyOf"].as_array().into_iter().flatten() {
        below(root, alternative, path, out);
    }
}

/// Follows `$ref` to a definition.
fn target<'v>(root: &'v Value, at: &'v Value) -> &'v Value {
    match at["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        Some(pointer) => root.pointer(pointer).unwrap_or(at),
        None => at,
    }
}

fn takes(root: &Value, key: &Value) -> String {
    let key = target(root, key);
    if let Some(alternatives) = key["anyOf"].as_array() {
        let mut words: Vec<String> = alternatives.iter().map(|schema| takes(root, schema)).collect();
        words.retain(|word| word != "nothing");
        return words.join(" or ");
    }
    let constants = |values: &Value| -> Option<String> {
        let words: Vec<String> = values
            .as_array()?
            .iter()
            .filter(|value| !value.is_null())
            .map(|value| value.to_string())
            .collect();
        Some(words.join(" or ").replace('"', "`"))
    };
    if let Some(words) = constants(&key["enum"]).or_else(|| {
        let cases: Vec<Value> = key["oneOf"].as_array()?.iter().map(|case| case["const"].clone()).collect();
        constants(&Value::Array(cases))
    }) {
        return words;
    }
    let kinds: Vec<&str> = match &key["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    let words: Vec<String> =
        kinds.into_iter().filter(|kind| *kind != "null").map(|kind| word(root, key, kind)).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" or ") }
}

fn word(root: &Value, key: &Value, kind: &str) -> String {
    match kind {
        "string" => "text".to_owned(),
        "integer" => match key["minimum"].as_u64() {
            Some(least) => format!("whole number from {least}"),
            None => "whole number".to_owned(),
        },
        "number" => "number".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "array" => format!("list of {}", takes(root, &key["items"])),
        "object" if key["additionalProperties"].is_object() => {
            format!("mapping from names to {}", takes(root, &key["additionalProperties"]))
        }
        _ => "mapping".to_owned(),
    }
}
