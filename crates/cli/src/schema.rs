//! `offspring schema`.

use std::process::ExitCode;

use offspring_agents::CommandSettings;
use offspring_pool::manifest;

use crate::{args::SchemaOf, failure::Failure, text::finish};

pub(crate) fn schema(what: SchemaOf) -> Result<ExitCode, Failure> {
    let SchemaOf::Manifest = what;
    let command = schemars::schema_for!(CommandSettings);
    let schema = manifest::schema(&[("command", command)]);
    finish(&format!("{}\n", serde_json::to_string_pretty(&schema)?))
}
