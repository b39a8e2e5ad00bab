//! The one thread that writes. It takes what has gathered, at most for [`LATENCY`], and writes
//! it in one transaction: a kill loses at most that.

use super::event::{Entry, Event, Process};
use super::schema;
use super::{Message, Start};
use crate::error::{Result, SessionError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Params, params};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How long an event may wait for others.
const LATENCY: Duration = Duration::from_millis(50);
/// A batch of this size is written at once.
const BATCH: usize = 16_384;

pub(super) struct Writer {
    connection: Connection,
    path: PathBuf,
    next: i64,
    processes: HashMap<Arc<Process>, i64>,
    /// The last `exec` of each process.
    running: HashMap<i32, i64>,
}

impl Writer {
    /// Makes the file. Nothing waits for this.
    pub fn create(path: &Path, start: &Start) -> Result<Writer> {
        let failed = |error| SessionError::database(path, error);
        let mut options = std::fs::File::options();
        options.write(true).create_new(true).mode(0o600);
        options.open(path).map_err(|error| SessionError::call("open", path, error))?;
        let mut connection = Connection::open(path).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(32);
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(failed)?;
        // An empty file needs no flush.
        connection
            .execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL;")
            .map_err(failed)?;
        schema::migrate(&mut connection, path, schema::MIGRATIONS.len())?;
        connection
            .execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000;")
            .map_err(failed)?;
        let argv = serde_json::to_string(&texts(&start.argv)).unwrap_or_default();
        connection
            .execute(
                "INSERT INTO session (one, id, name, argv, cwd, tier, pid, started) \
                 VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    start.id,
                    start.name,
                    argv,
                    start.cwd.to_string_lossy(),
                    start.tier,
                    std::process::id(),
                    super::now()
                ],
            )
            .map_err(failed)?;
        let path = path.to_owned();
        Ok(Writer { connection, path, next: 1, processes: HashMap::new(), running: HashMap::new() })
    }

    /// Writes until the senders are gone.
    pub fn run(
        &mut self,
        messages: &Receiver<Message>,
        waiting: &AtomicUsize,
        lost: &AtomicUsize,
    ) -> Result<()> {
        while let Ok(first) = messages.recv() {
            self.batch("BEGIN")?;
            let deadline = Instant::now() + LATENCY;
            let (mut message, mut count, mut answer, mut end) = (Some(first), 0, None, false);
            while let Some(taken) = message.take() {
                match taken {
                    Message::Entry(entry) => {
                        self.write(&entry)?;
                        waiting.fetch_sub(1, Ordering::Relaxed);
                    }
                    Message::End(ended) => {
                        if let Some(ended) = ended {
                            self.execute(
                                "UPDATE session SET ended = ?1, code = ?2, signal = ?3",
                                params![super::now(), ended.code(), ended.signal()],
                            )?;
                        }
                        end = true;
                        break;
                    }
                    Message::Flush(done) => {
                        answer = Some(done);
                        break;
                    }
                }
                count += 1;
                if count < BATCH {
                    let left = deadline.saturating_duration_since(Instant::now());
                    message = messages.recv_timeout(left).ok();
                }
            }
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.execute("UPDATE session SET lost = lost + ?1", [lost as i64])?;
            }
            self.batch("COMMIT")?;
            if let Some(answer) = answer {
                let _ = answer.send(());
            }
            if end {
                break;
            }
        }
        Ok(())
    }

    fn batch(&self, sql: &'static str) -> Result<()> {
        self.execute(sql, [])
    }

    fn execute(&self, sql: &'static str, values: impl Params) -> Result<()> {
        let done =
            self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        done.map(drop).map_err(|error| SessionError::database(&self.path, error))
    }

    fn process(&mut self, process: &Arc<Process>) -> Result<i64> {
        if let Some(&id) = self.processes.get(process) {
            return Ok(id);
        }
        let id = self.processes.len() as i64 + 1;
        let exe = process.exe.to_string_lossy();
        self.execute(
            "INSERT INTO process VALUES (?1, ?2, ?3, ?4, ?5)",
            params![id, process.pid, process.parent, exe, process.argv],
        )?;
        self.processes.insert(Arc::clone(process), id);
        Ok(id)
    }

    fn write(&mut self, entry: &Entry) -> Result<()> {
        let process = entry.process.as_ref().map(|process| self.process(process)).transpose()?;
        let pid = entry.process.as_ref().map_or(0, |process| process.pid);
        let (event, at) = (self.next, entry.at);
        self.next += 1;
        match &entry.event {
            Event::Exec { argv, cwd } => {
                let argv = serde_json::to_string(&texts(argv)).unwrap_or_default();
                self.running.insert(pid, event);
                self.execute(
                    "INSERT INTO exec (event, at, process, argv, cwd) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![event, at, process, argv, cwd.to_string_lossy()],
                )
            }
            Event::Exit { ended, duration } => {
                let Some(exec) = self.running.remove(&pid) else { return Ok(()) };
                self.execute(
                    "UPDATE exec SET code = ?2, signal = ?3, duration = ?4 WHERE event = ?1",
                    params![exec, ended.code(), ended.signal(), micros(*duration)],
                )
            }
            Event::Network { protocol, host, address, port, sent, received, duration, verdict } => {
                self.execute(
                    "INSERT INTO network VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                    params![
                        event,
                        at,
                        process,
                        verdict.word(),
                        protocol,
                        host,
                        address.map(|address| address.to_string()),
                        port,
                        *sent as i64,
                        *received as i64,
                        micros(*duration)
                    ],
                )
            }
            Event::Dns { name, record, code, answer, verdict, duration } => self.execute(
                "INSERT INTO dns VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    event,
                    at,
                    process,
                    verdict.word(),
                    name,
                    record,
                    code,
                    answer.map(|address| address.to_string()),
                    micros(*duration)
                ],
            ),
            Event::Http { method, host, path, status, sent, received, duration, verdict } => self
                .execute(
                    "INSERT INTO http VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                    params![
                        event,
                        at,
                        process,
                        verdict.word(),
                        method,
                        host,
                        path,
                        status,
                        *sent as i64,
                        *received as i64,
                        micros(*duration)
                    ],
                ),
            Event::File { change, path, from, size } => self.execute(
                "INSERT INTO file VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    event,
                    at,
                    process,
                    change.word(),
                    path.to_string_lossy(),
                    from.as_ref().map(|from| from.to_string_lossy()),
                    size.map(|size| size as i64)
                ],
            ),
            Event::Decision { verdict, act, object, rule, layer } => self.execute(
                "INSERT INTO decision VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![event, at, process, verdict.word(), act, object, rule, layer],
            ),
            Event::ToolCall { server, tool, arguments, error, verdict, duration } => self.execute(
                "INSERT INTO tool_call VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    event,
                    at,
                    process,
                    verdict.word(),
                    server,
                    tool,
                    arguments,
                    error,
                    micros(*duration)
                ],
            ),
            Event::Snapshot { verb, snapshot, name, paths } => self.execute(
                "INSERT INTO snapshot VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![event, at, process, verb, snapshot, name, *paths as i64],
            ),
            Event::Substitution { host, header, source } => self.execute(
                "INSERT INTO substitution VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![event, at, process, host, header, source],
            ),
            Event::ModelCall { provider, model, input, output, tool_calls, status, duration } => {
                self.execute(
                    "INSERT INTO model_call VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                    params![
                        event,
                        at,
                        process,
                        provider,
                        model,
                        input.map(|n| n as i64),
                        output.map(|n| n as i64),
                        *tool_calls as i64,
                        status,
                        micros(*duration)
                    ],
                )
            }
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn texts(all: &[OsString]) -> Vec<std::borrow::Cow<'_, str>> {
    all.iter().map(|text| text.to_string_lossy()).collect()
}
