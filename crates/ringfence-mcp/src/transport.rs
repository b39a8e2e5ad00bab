//! The way between a client and the protocol: one line a message, none longer than what is kept of it, and an answer to
//! each that wants one and has none of the protocol's.

use crate::judged::{self, Judged};
use crate::line::Outline;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetMeta, JsonRpcMessage, ProtocolVersion,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::RoleServer;
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// The longest line, with its end.
pub(crate) const MOST: usize = 16 << 20;

/// What comes from a client, and what goes to it.
///
/// `receive` is given up whenever something else is to be done, at any of its waits: what it has by then is kept here.
pub(crate) struct Lines<R, W> {
    from: BufReader<R>,
    /// The longest line.
    most: usize,
    /// What has come of a line.
    line: Vec<u8>,
    /// What is known of one that is longer.
    outline: Option<Outline>,
    /// What came at once with what is dealt with, and is next.
    batch: VecDeque<Value>,
    /// Batches are a part of the revision that was announced.
    batches: bool,
    /// The client has asked for what begins a session.
    begun: bool,
    /// An answer that was not given to the writer yet.
    owed: Option<Vec<u8>>,
    /// One that is the writer's, and may not be all written.
    unwritten: bool,
    to: Arc<Mutex<Writer<W>>>,
}

/// Writes lines, one behind the other.
struct Writer<W> {
    to: W,
    /// What is not written yet begins at `written`.
    lines: Vec<u8>,
    written: usize,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes what is there. Who gives up waiting leaves the rest to the next one.
    async fn write(&mut self) -> io::Result<()> {
        while self.written < self.lines.len() {
            match self.to.write(&self.lines[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                length => self.written += length,
            }
        }
        (self.lines, self.written) = (Vec::new(), 0);
        self.to.flush().await
    }
}

fn ended<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Lines<R, W> {
    pub(crate) fn new(from: R, to: W) -> Lines<R, W> {
        Lines::up_to(MOST, from, to)
    }

    fn up_to(most: usize, from: R, to: W) -> Lines<R, W> {
        let to = Writer { to, lines: Vec::new(), written: 0 };
        Lines {
            from: BufReader::new(from),
            most,
            line: Vec::new(),
            outline: None,
            batch: VecDeque::new(),
            batches: false,
            begun: false,
            owed: None,
            unwritten: false,
            to: Arc::new(Mutex::new(to)),
        }
    }

    /// Writes the answer that is owed.
    async fn answer(&mut self) -> io::Result<()> {
        if self.owed.is_none() && !self.unwritten {
            return Ok(());
        }
        let mut to = self.to.lock().await;
        if let Some(line) = self.owed.take() {
            to.lines.extend(line);
            self.unwritten = true;
        }
        to.write().await?;
        self.unwritten = false;
        Ok(())
    }

    /// The next line. `None`: there is none; what has no end is no message.
    async fn judged(&mut self) -> Option<Judged> {
        loop {
            let came = self.from.fill_buf().await.ok().filter(|came| !came.is_empty())?;
            let ends = came.iter().position(|&byte| byte == b'\n');
            let length = ends.map_or(came.len(), |at| at + 1);
            let bytes = &came[..ends.unwrap_or(length)];
            if self.outline.is_none() && self.line.len() + length > self.most {
                let mut outline = Outline::default();
                std::mem::take(&mut self.line).into_iter().for_each(|byte| outline.byte(byte));
                self.outline = Some(outline);
            }
            match &mut self.outline {
                Some(outline) => bytes.iter().for_each(|&byte| outline.byte(byte)),
                None => self.line.extend_from_slice(bytes),
            }
            self.from.consume(length);
            if ends.is_none() {
                continue;
            }
            if let Some(outline) = self.outline.take() {
                return Some(judged::too_long(outline, self.most));
            }
            let line = std::mem::take(&mut self.line);
            let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
            if !line.trim_ascii().is_empty() {
                return Some(judged::line(line, self.batches));
            }
        }
    }

    /// The next message.
    async fn next(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            self.answer().await.ok()?;
            let judged = match self.batch.pop_front() {
                Some(message) => judged::message(&message),
                None => self.judged().await?,
            };
            match judged {
                Judged::Message(message) if self.begins(&message) => return Some(*message),
                Judged::Message(_) | Judged::Nothing => {}
                Judged::Wrong(answer) => self.owed = Some(ended(&answer).ok()?),
                Judged::Batch(messages) => self.batch = messages.into(),
            }
        }
    }

    /// Whether a message is for the protocol: what is no request has no meaning before a session begins, and would end it.
    fn begins(&mut self, message: &ClientJsonRpcMessage) -> bool {
        let JsonRpcMessage::Request(request) = message else { return self.begun };
        self.begun |= match &request.request {
            ClientRequest::InitializeRequest(_) => true,
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
            request => request.get_meta().protocol_version().is_some(),
        };
        true
    }
}

impl<R, W> rmcp::transport::Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let JsonRpcMessage::Response(response) = &message
            && let ServerResult::InitializeResult(announced) = &response.result
        {
            // The only revision that has them: 2024-11-05 does not speak of them, 2025-06-18 gave them up.
            self.batches = announced.protocol_version == ProtocolVersion::V_2025_03_26;
        }
        let to = Arc::clone(&self.to);
        async move {
            let line = ended(&message)?;
            let mut to = to.lock().await;
            to.lines.extend(line);
            to.write().await
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.next().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.to.lock().await.to.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::AsyncReadExt;

    const LONGEST: usize = 20_000;

    /// The identifiers of what the protocol gets, and the answers that it does not hear of.
    fn through(lines: &[u8], batches: bool) -> (Vec<Value>, Vec<Value>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (mut got, mut answers) = (Vec::new(), Vec::new());
        runtime.block_on(async {
            let mut through = Lines::up_to(LONGEST, lines, &mut answers);
            (through.begun, through.batches) = (true, batches);
            while let Some(message) = through.next().await {
                let message = serde_json::to_value(message).expect("a value");
                got.push(message["id"].clone());
            }
        });
        let answers = serde_json::Deserializer::from_slice(&answers).into_iter();
        (got, answers.map(|answer| answer.expect("JSON")).collect())
    }

    /// A request of so many bytes, with the end of its line.
    fn request(members: &str, length: usize) -> Vec<u8> {
        let end = format!("\"}},\"jsonrpc\":\"2.0\",{members}}}\n");
        let mut line = br#"{"params":{"id":5,"text":""#.to_vec();
        line.resize(length - end.len(), b'x');
        line.extend_from_slice(end.as_bytes());
        line
    }

    #[test]
    fn what_is_too_long_is_answered_and_not_read() {
        let next = "{\"id\":9,\"jsonrpc\":\"2.0\",\"method\":\"ping\"}\n";
        for (members, id) in [
            (r#""method":"none","id":7"#, Some(json!(7))),
            (r#""method":"none","id": "a\"b" "#, Some(json!("a\"b"))),
            (r#""method":"notifications/progress""#, None),
            (r#""result":{},"id":7"#, None),
            (r#""what":1"#, Some(Value::Null)),
            (r#""id":7.5"#, Some(Value::Null)),
        ] {
            let long = request(members, LONGEST + 1);
            let all = [&long[..], next.as_bytes(), &long, next.as_bytes()].concat();
            let (got, answers) = through(&all, false);
            assert_eq!(got, [9, 9], "{members}");
            let told: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
            assert_eq!(told, id.iter().chain(&id).cloned().collect::<Vec<_>>(), "{members}");
            assert!(answers.iter().all(|answer| answer["error"]["code"] == -32600), "{answers:?}");
        }
        // The control: one byte less is read.
        let fits = request(r#""method":"none","id":7"#, LONGEST);
        assert_eq!(through(&fits, false), (vec![json!(7)], vec![]));
        // Without its end it is no line yet.
        let open = [br#"{"id":1,"method":"x","y":""#.to_vec(), vec![b'x'; LONGEST + 9]].concat();
        assert_eq!(through(&open, false), (vec![], vec![]));
    }

    #[test]
    fn batches_are_messages_where_the_revision_has_them() {
        let line = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},5,{"jsonrpc":"2.0","id":2,"method":"ping"}]
"#;
        let (got, answers) = through(line, true);
        assert_eq!((got, answers.len()), (vec![json!(1), json!(2)], 1));
        let (got, answers) = through(line, false);
        assert_eq!((got.len(), answers.len()), (0, 1));
        assert_eq!(answers[0]["id"], Value::Null);
        assert_eq!(through(b"[]\n", true).1[0]["error"]["code"], -32600);
    }

    #[test]
    fn answers_are_whole_whoever_gives_up_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let text = runtime.block_on(async {
            // The other side takes four bytes at a time.
            let (mut reader, writer) = tokio::io::duplex(4);
            let mut lines = Lines::new(&b"no\r\n\n \nmore\n"[..], writer);
            let mut text = Vec::new();
            while text.iter().filter(|&&byte| byte == b'\n').count() < 2 {
                tokio::select! {
                    biased;
                    none = lines.next() => assert!(none.is_none()),
                    () = std::future::ready(()) => {}
                }
                let mut four = [0; 4];
                let length = reader.read(&mut four).await.expect("read");
                text.extend_from_slice(&four[..length]);
            }
            text
        });
        let text = String::from_utf8(text).expect("a text");
        assert!(text.lines().all(|line| line.contains("-32700") && line.ends_with('}')), "{text}");
    }
}
