//! Reading ledgers, also those that are being written.

use super::schema::TABLES;
use super::{ingest, journal};
use crate::error::{Result, SessionError};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Rows, Statement};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its identifier.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// The command.
    pub argv: Vec<String>,
    /// Where it ran.
    pub cwd: String,
    /// The tier.
    pub tier: String,
    /// The launcher's process number.
    pub pid: i32,
    /// When it began, in microseconds since the epoch.
    pub started: i64,
    /// When it ended.
    pub ended: Option<i64>,
    /// Its exit code.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Events that were too many to be kept, or had no room on the disk.
    pub lost: u64,
    /// What it does is recorded.
    pub recorded: bool,
    /// Its launcher lives.
    pub live: bool,
    /// `ringfence suspend` holds it still.
    pub suspended: bool,
}

impl Session {
    /// `running`, `suspended`, `exited`, or `killed` where the launcher could not record an end.
    pub fn status(&self) -> &'static str {
        match (self.live, self.ended) {
            (true, None) if self.suspended => "suspended",
            (true, None) => "running",
            (_, Some(_)) => "exited",
            (false, None) => "killed",
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "argv": self.argv, "cwd": self.cwd,
            "tier": self.tier, "pid": self.pid, "started_us": self.started,
            "ended_us": self.ended, "code": self.code, "signal": self.signal, "lost": self.lost, "recorded": self.recorded,
            "status": self.status(),
        })
    }
}

/// One event, with the columns of its table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its number.
    pub event: i64,
    /// Microseconds since the epoch.
    pub at: i64,
    /// The table: `exec`, `network`…
    pub kind: &'static str,
    /// The columns.
    pub fields: Map<String, Value>,
}

impl Row {
    /// Something was refused.
    pub fn denied(&self) -> bool {
        self.text("verdict") == "deny"
    }

    /// A column as text; empty where there is none.
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A column as a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.fields.get(name).and_then(Value::as_i64)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let mut all = self.fields.clone();
        all.insert("event".into(), self.event.into());
        all.insert("at_us".into(), self.at.into());
        all.insert("kind".into(), self.kind.into());
        Value::Object(all)
    }
}

/// What is known of the session in a directory. Needs no database.
///
/// # Errors
/// There is none, or it is of a later version.
pub(crate) fn session(directory: &Path) -> Result<Session> {
    let (head, tail, live) = journal::ends(directory)?;
    Ok(Session {
        id: head.id,
        name: head.name,
        argv: head.argv,
        cwd: head.cwd,
        tier: head.tier,
        pid: head.pid,
        started: head.at,
        ended: tail.map(|tail| tail.at),
        code: tail.and_then(|tail| tail.ended.code()),
        signal: tail.and_then(|tail| tail.ended.signal()),
        lost: tail.map_or(0, |tail| tail.lost),
        recorded: head.record,
        live,
        suspended: live && directory.join(crate::live::SUSPENDED).exists(),
    })
}

/// An open ledger. It sees what was written, and holds nobody up.
pub struct Reader {
    connection: RefCell<Connection>,
    path: PathBuf,
    directory: PathBuf,
}

impl Reader {
    /// Opens the ledger in a session's directory.
    ///
    /// # Errors
    /// There is none; it is damaged; it is of a later version.
    pub fn open(directory: &Path) -> Result<Reader> {
        // Nothing is made where no session is.
        journal::ends(directory)?;
        let (connection, path) = ingest::current(directory)?;
        Ok(Reader { connection: connection.into(), path, directory: directory.to_owned() })
    }

    /// Where the disk got full since it was opened, it goes on alone: events have the same numbers in any database.
    fn catch_up(&self) -> Result<()> {
        let caught = ingest::catch_up(&self.connection.borrow(), &self.path, &self.directory);
        match caught {
            Err(error) if ingest::has_no_room(&error) => {
                self.connection.replace(ingest::alone(&self.path, &self.directory)?);
                Ok(())
            }
            other => other,
        }
    }

    /// What is known of the session.
    ///
    /// # Errors
    /// The journal is gone or damaged.
    pub fn session(&self) -> Result<Session> {
        session(&self.directory)
    }

    /// All events after one, in their order; only some kinds where some are named.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn events(&self, after: i64, kinds: &[&str], denied: bool) -> Result<Vec<Row>> {
        let mut all = Vec::new();
        self.each(after, kinds, denied, |row| {
            all.push(row);
            Ok(true)
        })?;
        Ok(all)
    }

    /// The same one by one, for records that are larger than what a reader should hold; until `act` says that it has
    /// enough.
    ///
    /// # Errors
    /// The file is damaged; what `act` returns.
    pub fn each(
        &self,
        after: i64,
        kinds: &[&str],
        denied: bool,
        mut act: impl FnMut(Row) -> Result<bool>,
    ) -> Result<()> {
        self.catch_up()?;
        // One state of all tables.
        let failed = |error| SessionError::database(&self.path, error);
        let connection = self.connection.borrow();
        let _transaction = connection.unchecked_transaction().map_err(failed)?;
        let mut statements = Vec::new();
        for table in TABLES {
            let condition = match (denied, DECIDED.contains(&table)) {
                (true, false) => continue,
                (true, true) => "event > ?1 AND verdict = 'deny'",
                (false, _) => "event > ?1",
            };
            if kinds.is_empty() || kinds.contains(&table) {
                statements.push((table, prepare(&connection, table, condition).map_err(failed)?));
            }
        }
        // No two tables have the same number: the one whose next row is the first gives it.
        let mut tables = Vec::new();
        for (table, statement) in &mut statements {
            let names = columns(statement);
            let rows = statement.query([after]).map_err(failed)?;
            let mut source = Source { table, names, rows, next: None };
            source.advance().map_err(failed)?;
            tables.push(source);
        }
        let next = |source: &Source| source.next.as_ref().map_or(i64::MAX, |row| row.event);
        while let Some(first) = tables.iter_mut().min_by_key(|source| next(source)) {
            let Some(row) = first.next.take() else { break };
            first.advance().map_err(failed)?;
            if !act(row)? {
                break;
            }
        }
        Ok(())
    }

    /// Those of some `exec` rows whose processes have ended by now.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn ended(&self, execs: &BTreeSet<i64>) -> Result<Vec<Row>> {
        let failed = |error| SessionError::database(&self.path, error);
        let mut all = Vec::new();
        let connection = self.connection.borrow();
        for event in execs {
            let condition = "event = ?1 AND row.duration IS NOT NULL";
            let mut statement = prepare(&connection, "exec", condition).map_err(failed)?;
            let names = columns(&statement);
            let rows = statement.query([event]).map_err(failed)?;
            let mut source = Source { table: "exec", names, rows, next: None };
            source.advance().map_err(failed)?;
            all.extend(source.next);
        }
        Ok(all)
    }
}

/// Rows that say whether something was refused.
const DECIDED: [&str; 5] = ["network", "dns", "http", "decision", "tool_call"];

/// Rows of a table with the columns of their processes, where a condition about one number holds.
fn prepare<'a>(
    connection: &'a Connection,
    table: &'static str,
    condition: &str,
) -> rusqlite::Result<CachedStatement<'a>> {
    connection.prepare_cached(&format!(
        "SELECT row.*, process.pid, nullif(process.parent, 0) AS parent, process.exe, \
         iif(process.id IS NULL, NULL, lower(hex(process.argv_hash))) AS argv_hash FROM {table} AS row \
         LEFT JOIN process ON process.id = row.process WHERE row.{condition} \
         ORDER BY row.event"
    ))
}

fn columns(statement: &Statement<'_>) -> Vec<String> {
    statement.column_names().map(Into::into).collect()
}

/// The rows of one table, one behind the other.
struct Source<'a> {
    table: &'static str,
    names: Vec<String>,
    rows: Rows<'a>,
    next: Option<Row>,
}

impl Source<'_> {
    fn advance(&mut self) -> rusqlite::Result<()> {
        self.next = match self.rows.next()? {
            Some(row) => Some(row_of(self.table, &self.names, row)?),
            None => None,
        };
        Ok(())
    }
}

fn row_of(table: &'static str, names: &[String], row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let mut fields = Map::new();
    for (at, name) in names.iter().enumerate().skip(2) {
        let value = match row.get_ref(at)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => number.into(),
            ValueRef::Real(number) => number.into(),
            ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into(),
        };
        if name != "process" {
            fields.insert(name.clone(), value);
        }
    }
    if let Some(argv) = fields.get_mut("argv") {
        *argv = serde_json::from_str(argv.as_str().unwrap_or_default()).unwrap_or_default();
    }
    Ok(Row { event: row.get(0)?, at: row.get(1)?, kind: table, fields })
}
