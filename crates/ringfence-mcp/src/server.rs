//! The server: the protocol is the official SDK's, the tools are in [`crate::tools`].

use crate::Config;
use crate::schema;
use crate::snapshots::Snapshots;
use crate::stdio;
use crate::text::shortened;
use crate::tools::{self, Answer};
use crate::transport::Lines;
use crate::within::Sandbox;
use ringfence_session::ledger::{Event, Verdict};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt};
use rustix::fd::AsFd;
use rustix::pipe::PipeFlags;
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What the client's model is told about the server.
const INSTRUCTIONS: &str = "\
Commands and files in a ringfence sandbox. What is not granted is not there (No such file), refused \
(Permission denied, Read-only file system, Operation not permitted), or not connected. Ask `why` \
which rule decides; `request_access` says what the user must type to allow it. No tool changes the \
policy. Make a snapshot before a risky change; `snapshot_revert` takes it back.";

/// How often a client is told that a call goes on: clients that wait for a sign give up after a minute.
const EACH: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Server(Arc<State>);

/// What the tools act on.
pub(crate) struct State {
    pub sandbox: Sandbox,
    pub snapshots: Snapshots,
    /// So many calls more may be under way.
    room: Semaphore,
}

/// As many calls run at once; further ones wait. Each has pipes, threads and a process.
const AT_ONCE: usize = 64;
/// Descriptors that one takes, at most, and those of the server itself.
const DESCRIPTORS: (u64, u64) = (12, 64);

/// As many as there are descriptors for.
fn room() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let calls = limit.saturating_sub(DESCRIPTORS.1) / DESCRIPTORS.0;
    usize::try_from(calls).unwrap_or(usize::MAX).clamp(1, AT_ONCE)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("ringfence", env!("CARGO_PKG_VERSION")))
            .with_instructions(match self.0.sandbox.apart() {
                Some(apart) => format!("{INSTRUCTIONS} Besides: {apart}."),
                None => INSTRUCTIONS.to_owned(),
            })
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |tool: &tools::Tool| {
            Tool::new(tool.name, tool.about, tool.schema())
                .with_raw_output_schema(Arc::new(schema::answer(tool.name)))
                .with_annotations(tool.annotations())
        };
        Ok(ListToolsResult::with_all_items(tools::ALL.iter().map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = tools::ALL.iter().find(|tool| tool.name == request.name) else {
            let known: Vec<&str> = tools::ALL.iter().map(|tool| tool.name).collect();
            let text =
                format!("there is no tool {}; there are: {}", request.name, known.join(", "));
            return Err(ErrorData::invalid_params(text, None));
        };
        let state = Arc::clone(&self.0);
        let _room = tokio::select! {
            room = self.0.room.acquire() => room,
            () = going_on(&context) => {
                return Err(ErrorData::internal_error("cancelled before it began", None));
            }
        };
        let arguments = request.arguments.unwrap_or_default();
        // Closed when nobody waits for the answer any more.
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (cancelled, waiting) =
            pipe.map_err(|error| ErrorData::internal_error(format!("pipe2: {error}"), None))?;
        let call = move || {
            let (began, text) = (Instant::now(), shortened(&arguments));
            let answer = tool.call(&state, &arguments, cancelled.as_fd());
            state.sandbox.record(&Event::ToolCall {
                server: String::new(),
                tool: tool.name.to_owned(),
                arguments: text,
                error: answer.as_ref().err().cloned(),
                verdict: Verdict::Allow,
                duration: began.elapsed(),
            });
            answer
        };
        let mut answer = tokio::task::spawn_blocking(call);
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = going_on(&context) => {
                drop(waiting);
                answer.await
            }
        };
        let answer: Answer = answer.unwrap_or_else(|error| Err(error.to_string()));
        Ok(match answer {
            Ok(value) => CallToolResult::structured(value),
            Err(text) => CallToolResult::structured_error(serde_json::json!({ "error": text })),
        }
        .into())
    }
}

/// Tells a client that wants to hear of it that a call goes on, as long as it does; returns when it is cancelled.
async fn going_on(context: &RequestContext<RoleServer>) {
    let (token, began) = (context.meta.get_progress_token(), Instant::now());
    let mut ticks = tokio::time::interval(EACH);
    // The first one is at once.
    ticks.tick().await;
    loop {
        tokio::select! {
            () = context.ct.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Some(token) = &token {
            let told = ProgressNotificationParam::new(token.clone(), began.elapsed().as_secs_f64());
            // A client that is gone is told of by the end of the connection.
            let _ = context.peer.notify_progress(told.with_message("seconds")).await;
        }
    }
}

/// Serves a client on standard input and output until it goes.
///
/// # Errors
/// The sandbox does not start; the client does not speak the protocol.
pub fn serve(config: Config) -> Result<(), String> {
    let sandbox = Sandbox::start(config)?;
    let state =
        Arc::new(State { sandbox, snapshots: Snapshots::default(), room: Semaphore::new(room()) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let watched = Arc::downgrade(&state);
    std::thread::spawn(move || {
        until_nobody_reads();
        if let Some(state) = watched.upgrade() {
            state.sandbox.end();
        }
    });
    let served = runtime.block_on(async {
        let (input, output) = stdio::both();
        let service = Server(Arc::clone(&state)).serve(Lines::new(input, output)).await;
        let service = service.map_err(|error| format!("the client cannot be served: {error}"))?;
        service.waiting().await.map(drop).map_err(|error| format!("serving ended: {error}"))
    });
    // Calls that are under way have had their time; what they run ends with the sandbox.
    state.sandbox.end();
    runtime.shutdown_background();
    served
}

/// Waits until the other end of standard output is closed: no answer reaches anybody then.
fn until_nobody_reads() {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdout = std::io::stdout();
    // Errors and hang-ups are told without being asked for.
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    while poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
}
