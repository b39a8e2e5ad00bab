//! The JSON Schema of a profile file, made from the table of its keys.

use crate::key::{KEYS, Key, KeyInfo, Shape, TABLES};
use crate::profile::{CONFIGURATION, WHOLE};
use serde_json::{Map, Value, json};

/// The JSON Schema (draft 2020-12) that editors check a profile with.
pub fn schema() -> Value {
    let mut properties = all();
    let mut configuration = all();
    for key in WHOLE {
        configuration.remove(key.info().name);
    }
    let one = json!({
        "type": "object", "additionalProperties": false, "properties": configuration,
    });
    let configurations = json!({
        "type": "object",
        "description": "Variations of the profile, picked as PROFILE:NAME; each sets what it changes.",
        "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "additionalProperties": one,
    });
    properties.insert(CONFIGURATION.to_owned(), configurations);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ringfence profile",
        "description": "What a sandbox may do.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

/// The keys at the top, and the tables.
fn all() -> Map<String, Value> {
    let mut properties = keys("");
    for (table, description) in TABLES {
        let table_schema = json!({
            "type": "object",
            "description": description,
            "additionalProperties": false,
            "properties": keys(table),
        });
        properties.insert(table.to_owned(), table_schema);
    }
    properties
}

fn keys(table: &str) -> Map<String, Value> {
    let here = KEYS.iter().filter(|info| info.table == table);
    here.map(|info| (info.name.to_owned(), key(info))).collect()
}

fn key(info: &KeyInfo) -> Value {
    let mut schema = match info.shape {
        Shape::Text if !info.values.is_empty() => json!({"enum": info.values}),
        Shape::Text => json!({"type": "string"}),
        Shape::Quantity => json!({"type": ["string", "number"], "exclusiveMinimum": 0}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Grants | Shape::Adds if info.key == Key::Publish => {
            json!({"type": "array", "items": {"type": ["string", "integer"]}})
        }
        Shape::Grants | Shape::Adds => json!({"type": "array", "items": {"type": "string"}}),
        Shape::Pairs => {
            json!({"type": "object", "additionalProperties": {"type": ["string", "number"]}})
        }
    };
    schema["description"] = Value::from(info.doc);
    schema
}
