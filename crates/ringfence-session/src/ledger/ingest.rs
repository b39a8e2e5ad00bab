//! From the journal to `session.db`: whoever reads a session brings its database up to date first,
//! and starts where the last one stopped.
//!
//! The journal is what the launcher wrote; the database can be made again from it at any time.

use super::event::{Ended, Event, Process};
use super::journal::{self, Head, Line, NAME, Tail};
use super::schema;
use crate::error::{Result, SessionError};
use crate::wal::log_ahead;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Params, params};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lines in one transaction: as many as another reader may have to wait for.
const BATCH: usize = 20_000;
/// How long a reader waits for another one's transaction at a time, and how often while nobody takes
/// a single line.
const WAIT: Duration = Duration::from_secs(5);
const WAITS: usize = 12;

/// Opens the database of a session with all that the journal has by now. Where there is no room for it (a disk that is
/// full, or one that may only be read), it is this reader's alone.
pub(super) fn current(directory: &Path) -> Result<(Connection, PathBuf)> {
    let (connection, path) = open(directory)?;
    match catch_up(&connection, &path, directory) {
        Err(error) if has_no_room(&error) => {
            alone(&path, directory).map(|connection| (connection, path))
        }
        other => other.map(|()| (connection, path)),
    }
}

/// A database for this reader alone, with all that the journal has by now.
pub(super) fn alone(path: &Path, directory: &Path) -> Result<Connection> {
    let memory = memory(path)?;
    catch_up(&memory, path, directory).map(|()| memory)
}

/// A disk that is full is an input error as well to SQLite, where what it maps cannot grow.
pub(super) fn has_no_room(error: &SessionError) -> bool {
    let code = match error {
        SessionError::Full(_) => return true,
        SessionError::Database { source, .. } => source.sqlite_error_code(),
        _ => None,
    };
    code == Some(ErrorCode::SystemIoFailure)
}

/// Opens the database, and makes it when there is none.
fn open(directory: &Path) -> Result<(Connection, PathBuf)> {
    // SQLite's own refusal of links is about the whole path, and where a home is may be one.
    let directory = directory
        .canonicalize()
        .map_err(|error| SessionError::call("realpath", directory, error))?;
    let path = directory.join("session.db");
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let made = match options.open(&path) {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        // A full disk, or one that may only be read: a database for this reader alone.
        Err(_) => return memory(&path).map(|connection| (connection, path)),
    };
    match on_disk(&path, made) {
        // What was just made is nobody else's, and nothing is lost with it.
        Err(error) if made || has_no_room(&error) => memory(&path).map(|memory| (memory, path)),
        other => other.map(|connection| (connection, path)),
    }
}

fn on_disk(path: &Path, made: bool) -> Result<Connection> {
    let failed = |error| SessionError::database(path, error);
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE
        | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX
        | rusqlite::OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(WAIT).map_err(failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    // What a crash of the machine takes is made again from the journal.
    connection.execute_batch("PRAGMA synchronous = OFF;").map_err(failed)?;
    if made || schema::version(&connection, path)? < schema::MIGRATIONS.len() {
        log_ahead(&connection).map_err(failed)?;
        schema::migrate(&mut connection, path, schema::MIGRATIONS.len())?;
    }
    Ok(connection)
}

fn memory(path: &Path) -> Result<Connection> {
    let mut connection =
        Connection::open_in_memory().map_err(|error| SessionError::database(path, error))?;
    schema::migrate(&mut connection, path, schema::MIGRATIONS.len())?;
    Ok(connection)
}

/// Takes what the journal has more than the database: what was written before this call. What comes
/// meanwhile is for the next one, since a writer may be faster than any reader.
pub(super) fn catch_up(connection: &Connection, path: &Path, directory: &Path) -> Result<()> {
    let journal = directory.join(NAME);
    let file = File::open(&journal).map_err(|error| SessionError::call("open", &journal, error))?;
    let database = |error| SessionError::database(path, error);
    let mut taken = offset(connection, path)?;
    let data = file.metadata().map_err(|error| SessionError::call("read", &journal, error))?;
    let wanted = data.len();
    if wanted < taken {
        return Err(shorter(&journal));
    }
    let (mut more, mut waits) = (true, 0);
    while more && taken < wanted {
        // Only one reader takes lines at a time; the others wait, and find them taken.
        match connection.execute_batch("BEGIN IMMEDIATE") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                let now = offset(connection, path)?;
                waits = if now == taken { waits + 1 } else { 0 };
                if waits == WAITS {
                    return Err(database(error));
                }
                taken = now;
                continue;
            }
            other => other.map_err(database)?,
        }
        let batch = batch(connection, path, &file, &journal);
        let end = if batch.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = connection.execute_batch(end).map_err(database);
        more = batch?;
        ended?;
        taken = offset(connection, path)?;
    }
    Ok(())
}

fn shorter(journal: &Path) -> SessionError {
    let what = "it is shorter than it was".to_owned();
    SessionError::Corrupt { path: journal.to_owned(), what }
}

/// How far the journal was taken.
fn offset(connection: &Connection, path: &Path) -> Result<u64> {
    let offset: i64 = connection
        .query_row("SELECT offset FROM taken", [], |row| row.get(0))
        .map_err(|error| SessionError::database(path, error))?;
    Ok(offset as u64)
}

/// Takes lines in one transaction; true when there may be more.
fn batch(connection: &Connection, path: &Path, file: &File, journal: &Path) -> Result<bool> {
    let failed = |error| SessionError::call("read", journal, error);
    let mut at = offset(connection, path)?;
    let mut reader = BufReader::with_capacity(256 * 1024, file);
    if file.metadata().map_err(failed)?.len() < at {
        return Err(shorter(journal));
    }
    reader.seek(SeekFrom::Start(0)).map_err(failed)?;
    // Its version is checked each time.
    let head = journal::head(&mut reader, journal)?;
    reader.seek(SeekFrom::Start(at)).map_err(failed)?;
    let mut taker = Taker::new(connection, path)?;
    let mut line = Vec::new();
    let mut count = 0;
    while count < BATCH && journal::next_line(&mut reader, &mut line).map_err(failed)? {
        at += line.len() as u64;
        count += 1;
        if at == line.len() as u64 {
            taker.start(&head)?;
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(Line::Brief(brief)) => {
                brief.lines(&head).into_iter().try_for_each(|line| taker.line(line))?;
            }
            Ok(line) => taker.line(line)?,
            // What a full disk cut off.
            Err(_) => taker.skipped += 1,
        }
    }
    taker.finish(at)?;
    Ok(count == BATCH)
}

/// Writes rows.
struct Taker<'a> {
    connection: &'a Connection,
    path: &'a Path,
    next: i64,
    skipped: i64,
    processes: HashMap<Process, i64>,
    next_process: i64,
    /// The last `exec` of each process.
    running: HashMap<i32, i64>,
}

impl<'a> Taker<'a> {
    fn new(connection: &'a Connection, path: &'a Path) -> Result<Taker<'a>> {
        let failed = |error| SessionError::database(path, error);
        let (next, skipped) = connection
            .query_row("SELECT next, skipped FROM taken", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        let next_process = connection
            .query_row("SELECT ifnull(max(id), 0) + 1 FROM process", [], |row| row.get(0))
            .map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(32);
        let (processes, running) = <(HashMap<_, _>, HashMap<_, _>)>::default();
        Ok(Taker { connection, path, next, skipped, processes, next_process, running })
    }

    fn finish(&self, at: u64) -> Result<()> {
        self.execute(
            "UPDATE taken SET offset = ?1, next = ?2, skipped = ?3",
            params![at as i64, self.next, self.skipped],
        )
    }

    fn line(&mut self, line: Line) -> Result<()> {
        match line {
            Line::Event { at, by, what } => self.write(at, by.as_ref(), &what)?,
            Line::End(tail) => self.end(tail)?,
            // Where they cannot be.
            Line::Start(_) | Line::Brief(_) => self.skipped += 1,
        }
        Ok(())
    }

    fn start(&self, head: &Head) -> Result<()> {
        self.execute(
            "INSERT INTO session (one, id, name, argv, cwd, tier, pid, started) \
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                head.id,
                head.name,
                serde_json::to_string(&head.argv).unwrap_or_default(),
                head.cwd,
                head.tier,
                head.pid,
                head.at
            ],
        )
    }

    fn end(&self, tail: Tail) -> Result<()> {
        self.execute(
            "UPDATE session SET ended = ?1, code = ?2, signal = ?3, lost = ?4",
            params![tail.at, tail.ended.code(), tail.ended.signal(), tail.lost as i64],
        )
    }

    fn execute(&self, sql: &'static str, values: impl Params) -> Result<()> {
        let done =
            self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        done.map(drop).map_err(|error| SessionError::database(self.path, error))
    }

    fn process(&mut self, process: &Process) -> Result<i64> {
        if let Some(&id) = self.processes.get(process) {
            return Ok(id);
        }
        let exe = process.exe.to_string_lossy();
        let known = self
            .connection
            .prepare_cached(
                "SELECT id FROM process WHERE pid = ?1 AND parent = ?2 AND exe = ?3 AND argv_hash = ?4",
            )
            .and_then(|mut statement| {
                let values = params![process.pid, process.parent, exe, process.argv];
                statement.query_row(values, |row| row.get(0)).optional()
            });
        if let Some(id) = known.map_err(|error| SessionError::database(self.path, error))? {
            self.processes.insert(process.clone(), id);
            return Ok(id);
        }
        let id = self.next_process;
        self.next_process += 1;
        self.execute(
            "INSERT INTO process VALUES (?1, ?2, ?3, ?4, ?5)",
            params![id, process.pid, process.parent, exe, process.argv],
        )?;
        self.processes.insert(process.clone(), id);
        Ok(id)
    }

    /// The `exec` that an exit completes.
    fn execution(&mut self, pid: i32) -> Result<Option<i64>> {
        if let Some(exec) = self.running.remove(&pid) {
            return Ok(Some(exec));
        }
        let open = "SELECT max(event) FROM exec JOIN process ON process.id = exec.process \
                    WHERE process.pid = ?1 AND duration IS NULL";
        self.connection
            .prepare_cached(open)
            .and_then(|mut statement| statement.query_row([pid], |row| row.get(0)))
            .map_err(|error| SessionError::database(self.path, error))
    }

    fn write(&mut self, at: i64, by: Option<&Process>, what: &Event) -> Result<()> {
        let process = by.map(|process| self.process(process)).transpose()?;
        let pid = by.map_or(0, |process| process.pid);
        let event = self.next;
        if !matches!(what, Event::Exit { .. }) {
            self.next += 1;
        }
        match what {
            Event::Exec { argv, cwd } => {
                let argv = serde_json::to_string(&texts(argv)).unwrap_or_default();
                self.running.insert(pid, event);
                self.execute(
                    "INSERT INTO exec (event, at, process, argv, cwd) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![event, at, process, argv, cwd.to_string_lossy()],
                )
            }
            Event::Exit { ended, duration } => {
                let Some(exec) = self.execution(pid)? else { return Ok(()) };
                self.execute(
                    "UPDATE exec SET code = ?2, signal = ?3, duration = ?4 WHERE event = ?1",
                    params![
                        exec,
                        ended.and_then(Ended::code),
                        ended.and_then(Ended::signal),
                        micros(*duration)
                    ],
                )
            }
            Event::Network {
                protocol,
                host,
                address,
                port,
                published,
                peers,
                sent,
                received,
                duration,
                verdict,
                why,
            } => self.execute(
                "INSERT INTO network VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
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
                    micros(*duration),
                    why,
                    published,
                    peers.map(|peers| peers as i64)
                ],
            ),
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
            Event::Http { method, host, path, status, sent, received, duration, verdict, why } => self
                .execute(
                    "INSERT INTO http VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
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
                        micros(*duration),
                        why
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
