//! `offspring schema`: what an editor needs to help with a file of ours.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use offspring_agents::{CommandSettings, DshSettings};
use offspring_pool::manifest;

use crate::{failure::Failure, text::finish};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    offspring schema manifest > manifest.schema.json")]
pub(crate) struct Schema {
    /// Of what.
    pub(crate) what: SchemaOf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The manifest of a pool.
    Manifest,
}

/// The node types of this program with the schema of their keys.
pub(crate) fn node_types() -> [(&'static str, schemars::Schema); 2] {
    [("command", schemars::schema_for!(CommandSettings)), ("dsh", schemars::schema_for!(DshSettings))]
}

pub(crate) fn schema(args: &Schema) -> Result<ExitCode, Failure> {
    let SchemaOf::Manifest = args.what;
    let schema = manifest::schema(&node_types());
    finish(&format!("{}\n", serde_json::to_string_pretty(&schema)?))
}
