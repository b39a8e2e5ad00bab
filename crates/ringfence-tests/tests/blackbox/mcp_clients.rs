//! The official MCP clients get on with the server, and each answer is what its tool says that it is.

use ringfence_tests::{Running, Tier, binary, everybody, left_out};
use std::fs;

/// The official clients, installed once for all runs.
fn installed(name: &str, script: &str) -> Option<std::path::PathBuf> {
    let at = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&at).unwrap();
    let done = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(&at)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .status();
    done.is_ok_and(|status| status.success()).then_some(at)
}

#[test]
fn the_official_python_client_gets_on_with_it() {
    let install = "test -e done || { python3 -m venv . && bin/pip install -q mcp && touch done; }";
    let Some(at) = installed("mcp-python", install) else {
        return left_out("the official Python client", "pip cannot install mcp here");
    };
    let client = "import asyncio, jsonschema, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=['mcp'])
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            print(len(tools))
            # Each answer, of a call that failed too, is what its tool says that it is.
            async def call(tool, /, failed=False, **arguments):
                done = await session.call_tool(tool, arguments)
                # The names of the protocol: the client's own are others from version to version.
                said = done.model_dump(by_alias=True)
                schema = tools[tool].model_dump(by_alias=True)['outputSchema']
                assert said['isError'] == failed, (tool, said)
                jsonschema.validate(said['structuredContent'], schema)
                unknown = set(said['structuredContent']) - set(schema['properties'])
                assert not unknown, (tool, unknown)
                called.add(tool)
                return done
            called = set()
            done = await call('exec', command=['echo', 'hello'])
            print(done.content[0].text)
            await call('run', command=['sh', '-c', 'exit 3'])
            await call('write_file', path='file', text='one')
            await call('read_file', path='file')
            await call('read_file', path='none', failed=True)
            await call('list_directory', path='.')
            await call('snapshot_create', name='base')
            await call('write_file', path='file', text='two')
            await call('write_file', path='new', text='new')
            await call('snapshot_list')
            await call('snapshot_show', snapshot='base')
            await call('snapshot_show', snapshot='base', path='file')
            await call('snapshot_changes', snapshot='base')
            await call('snapshot_diff', snapshot='base')
            await call('snapshot_history', path='file')
            await call('snapshot_revert', snapshot='base')
            await call('snapshot_revert', snapshot='base')
            await call('snapshot_delete', snapshot='base')
            await call('snapshot_delete', snapshot='base', failed=True)
            for words in (['exec', 'ls'], ['write', '/etc/passwd'], ['connect', 'example.org:443']):
                await call('why', verb=words[0], operands=words[1:])
                await call('request_access', verb=words[0], operands=words[1:])
            await call('session')
            await call('session_log')
            await call('session_log', denied='yes')
            assert called == set(tools), set(tools) - called

asyncio.run(main())
";
    meets(&at, &at.join("bin/python"), "client.py", client);
}

#[test]
fn the_official_typescript_client_gets_on_with_it() {
    let install = "test -e done || { npm install --silent --no-audit --no-fund \
                   @modelcontextprotocol/sdk && touch done; }";
    let Some(at) = installed("mcp-node", install) else {
        return left_out("the official TypeScript client", "npm cannot install it here");
    };
    let from = at.join("node_modules/@modelcontextprotocol/sdk/dist/esm/client");
    let client = format!(
        "import {{ Client }} from '{0}/index.js';
import {{ StdioClientTransport }} from '{0}/stdio.js';
const client = new Client({{ name: 'test', version: '1' }});
const env = process.env;
await client.connect(new StdioClientTransport({{ command: process.argv[2], args: ['mcp'], env }}));
console.log((await client.listTools()).tools.length);
const done = await client.callTool({{ name: 'exec', arguments: {{ command: ['echo', 'hello'] }} }});
console.log(done.structuredContent.stdout);
// The client checks each answer against the schema of its tool.
const call = (name, given) => client.callTool({{ name, arguments: given }});
const failed = await call('read_file', {{ path: 'none' }});
if (!failed.isError || !failed.structuredContent.error) throw new Error(JSON.stringify(failed));
for (const [name, given] of [
  ['write_file', {{ path: 'file', text: 'one' }}], ['snapshot_create', {{ name: 'base' }}],
  ['snapshot_changes', {{ snapshot: 'base' }}], ['why', {{ verb: 'write', operands: ['/etc'] }}],
  ['session', {{}}], ['session_log', {{}}],
]) {{
  const said = await call(name, given);
  if (said.isError) throw new Error(name + JSON.stringify(said));
}}
await client.close();
",
        from.display()
    );
    meets(&at, "node".as_ref(), "client.mjs", &client);
}

fn meets(at: &std::path::Path, program: &std::path::Path, name: &str, client: &str) {
    everybody(Tier::Namespace, |place| {
        let reads = place.command("ls").arg(at).output().is_ok_and(|ls| ls.status.success());
        if !reads || place.command(program).arg("--version").output().is_err() {
            return left_out("the official client", "this person cannot read or execute it");
        }
        place.file(format!("home/project/{name}"), client);
        let mut command = place.command(program);
        command.arg(name).arg(binary());
        Running::start(command).finish().ends(0).prints("17").prints("hello");
    });
}
