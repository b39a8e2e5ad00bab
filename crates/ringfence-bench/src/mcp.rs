//! A client of `ringfence mcp`, for the operations that are to be timed without a process's start.

use crate::background::Background;
use crate::bench::Bench;
use crate::error::{Result, error};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A running MCP server.
pub struct Gateway {
    /// The workspace that it serves.
    pub dir: PathBuf,
    process: Background,
    tools: Vec<Value>,
    number: u64,
}

impl Gateway {
    /// Starts the server in a workspace and asks for its tools.
    pub fn start(bench: &mut Bench, dir: &Path) -> Result<Gateway> {
        bench.has("mcp").map_err(crate::error::Error::new)?;
        let command = bench.product_in(dir, &["mcp"])?;
        let process = Background::start(bench, &command)?;
        let mut gateway = Gateway { dir: dir.to_owned(), process, tools: Vec::new(), number: 0 };
        let client = json!({ "name": "ringfence-bench", "version": env!("CARGO_PKG_VERSION") });
        let hello =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        gateway.request("initialize", &hello)?;
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        gateway.process.send(&note.to_string())?;
        let listed = gateway.request("tools/list", &json!({}))?;
        gateway.tools = listed["tools"].as_array().cloned().unwrap_or_default();
        Ok(gateway)
    }

    /// One operation on snapshots: how long the answer took, and what it says.
    pub fn snapshot(&mut self, what: &str, name: Option<&str>) -> Result<(Duration, String)> {
        let call = call_of(&self.tools, what, name)
            .ok_or_else(|| error!("the MCP server has no tool to {what} snapshots"))?;
        let began = Instant::now();
        let result = self.request("tools/call", &call)?;
        let time = began.elapsed();
        if result["isError"] == json!(true) {
            return Err(error!("snapshot {what} over MCP failed: {result}"));
        }
        Ok((time, result.to_string()))
    }

    /// One command in the server's sandbox: how long it took, from the question to the answer.
    pub fn exec(&mut self, argv: &[OsString]) -> Result<Duration> {
        let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
        let call = json!({ "name": "exec", "arguments": { "command": words } });
        let began = Instant::now();
        let result = self.request("tools/call", &call)?;
        let time = began.elapsed();
        if result["structuredContent"]["exit_code"] != json!(0) {
            return Err(error!("{} over MCP failed: {result}", words.join(" ")));
        }
        Ok(time)
    }

    /// Sends a request and waits for its answer, passing over what the server says unasked.
    fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.number += 1;
        let number = self.number;
        let request = json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params });
        self.process.send(&request.to_string())?;
        loop {
            let line = self.process.line().map_err(|cause| error!("the MCP server: {cause}"))?;
            let answer: Value = serde_json::from_str(&line)
                .map_err(|_| error!("the MCP server said {line:?} instead of JSON"))?;
            if answer["id"] != json!(number) {
                continue;
            }
            if let Some(refusal) = answer.get("error") {
                return Err(error!("the MCP server refused {method}: {refusal}"));
            }
            return Ok(answer["result"].clone());
        }
    }
}

/// The call of the tool that does `what`: one of its own (`snapshot_create`), or one for all that is
/// told which (`snapshot` with an `action`). The snapshot goes by the argument that the tool has for it.
fn call_of(tools: &[Value], what: &str, name: Option<&str>) -> Option<Value> {
    let named = |tool: &&Value, part: &str| {
        tool["name"].as_str().is_some_and(|name| name.to_lowercase().contains(part))
    };
    let own = tools.iter().find(|tool| named(tool, "snapshot") && named(tool, what));
    let has = |tool: &Value, names: &[&'static str]| {
        names.iter().copied().find(|name| tool["inputSchema"]["properties"].get(name).is_some())
    };
    let shared = || tools.iter().find(|tool| named(tool, "snapshot"));
    let tool = own.or_else(shared)?;
    let mut arguments = json!({});
    if own.is_none() {
        arguments[has(tool, &["action", "operation", "op"])?] = json!(what);
    }
    if let Some(name) = name {
        arguments[has(tool, &["name", "snapshot", "id"])?] = json!(name);
    }
    Some(json!({ "name": tool["name"], "arguments": arguments }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, properties: &[&str]) -> Value {
        let properties: serde_json::Map<_, _> =
            properties.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        json!({ "name": name, "inputSchema": { "properties": properties } })
    }

    #[test]
    fn a_tool_for_each_operation_is_found() {
        let tools = [tool("run", &["command"]), tool("snapshot_revert", &["snapshot"])];
        let call = call_of(&tools, "revert", Some("s")).expect("a call");
        assert_eq!(call, json!({ "name": "snapshot_revert", "arguments": { "snapshot": "s" } }));
    }

    #[test]
    fn one_tool_for_all_operations_is_told_which() {
        let tools = [tool("snapshots", &["action", "name"])];
        let call = call_of(&tools, "create", Some("s")).expect("a call");
        assert_eq!(call["arguments"], json!({ "action": "create", "name": "s" }));
        assert_eq!(call_of(&[tool("run", &[])], "create", None), None);
    }
}
