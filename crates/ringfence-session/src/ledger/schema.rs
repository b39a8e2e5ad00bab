//! The tables of `session.db`. Each row has an event number that no other row of any table has,
//! so that the tables read together tell one story.

use crate::error::{Result, SessionError};
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

/// One step for each version. A step that was published is never changed.
pub(super) const MIGRATIONS: [&str; 4] = [
    "
CREATE TABLE session (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  id TEXT NOT NULL, name TEXT, argv TEXT NOT NULL, cwd TEXT NOT NULL, tier TEXT NOT NULL,
  pid INTEGER NOT NULL, started INTEGER NOT NULL,
  ended INTEGER, code INTEGER, signal INTEGER
);
CREATE TABLE process (
  id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, parent INTEGER NOT NULL, exe TEXT NOT NULL,
  argv_hash BLOB NOT NULL CHECK (length(argv_hash) = 32)
);
CREATE TABLE exec (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  argv TEXT NOT NULL, cwd TEXT NOT NULL, code INTEGER, signal INTEGER, duration INTEGER
);
CREATE TABLE network (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  verdict TEXT NOT NULL CHECK (verdict IN ('allow', 'deny')),
  protocol TEXT NOT NULL CHECK (protocol IN ('tcp', 'udp', 'unix')),
  host TEXT, address TEXT, port INTEGER NOT NULL CHECK (port BETWEEN 0 AND 65535),
  sent INTEGER NOT NULL, received INTEGER NOT NULL, duration INTEGER NOT NULL
);
CREATE TABLE dns (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  verdict TEXT NOT NULL CHECK (verdict IN ('allow', 'deny')),
  name TEXT NOT NULL, record TEXT NOT NULL, code INTEGER NOT NULL CHECK (code BETWEEN 0 AND 255),
  answer TEXT, duration INTEGER NOT NULL
);
CREATE TABLE http (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  verdict TEXT NOT NULL CHECK (verdict IN ('allow', 'deny')),
  method TEXT NOT NULL, host TEXT NOT NULL, path TEXT NOT NULL, status INTEGER,
  sent INTEGER NOT NULL, received INTEGER NOT NULL, duration INTEGER NOT NULL
);
CREATE TABLE file (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  change TEXT NOT NULL
    CHECK (change IN ('created', 'modified', 'deleted', 'renamed', 'restored')),
  path TEXT NOT NULL, was TEXT, size INTEGER
);
CREATE TABLE decision (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  verdict TEXT NOT NULL CHECK (verdict IN ('allow', 'deny')),
  act TEXT NOT NULL, object TEXT NOT NULL, rule TEXT NOT NULL, layer TEXT NOT NULL
);
CREATE TABLE tool_call (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  verdict TEXT NOT NULL CHECK (verdict IN ('allow', 'deny')),
  server TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, error TEXT,
  duration INTEGER NOT NULL
);
CREATE TABLE snapshot (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  verb TEXT NOT NULL CHECK (verb IN ('create', 'revert', 'delete', 'compact')),
  snapshot INTEGER NOT NULL, name TEXT, paths INTEGER NOT NULL
);
CREATE TABLE substitution (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  host TEXT NOT NULL, header TEXT NOT NULL, source TEXT NOT NULL
);
CREATE TABLE model_call (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  provider TEXT NOT NULL, model TEXT NOT NULL, input INTEGER, output INTEGER,
  tool_calls INTEGER NOT NULL, status INTEGER, duration INTEGER NOT NULL
);
",
    // Events that were too many to be kept are at least counted.
    "ALTER TABLE session ADD COLUMN lost INTEGER NOT NULL DEFAULT 0 CHECK (lost >= 0);",
    // How far the journal was taken, the number of the next event, and lines that were no lines.
    "
CREATE TABLE taken (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  offset INTEGER NOT NULL, next INTEGER NOT NULL, skipped INTEGER NOT NULL
);
INSERT INTO taken VALUES (1, 0, 1, 0);
CREATE INDEX process_pid ON process (pid);
",
    // Why something was refused or failed; of those who came in, where, and how many a row is about, of which
    // none has a port of its own.
    "
ALTER TABLE network RENAME TO network_before;
CREATE TABLE network (
  event INTEGER PRIMARY KEY, at INTEGER NOT NULL, process INTEGER REFERENCES process (id),
  verdict TEXT NOT NULL CHECK (verdict IN ('allow', 'deny')),
  protocol TEXT NOT NULL CHECK (protocol IN ('tcp', 'udp', 'unix')),
  host TEXT, address TEXT, port INTEGER CHECK (port BETWEEN 0 AND 65535),
  sent INTEGER NOT NULL, received INTEGER NOT NULL, duration INTEGER NOT NULL,
  why TEXT, published INTEGER CHECK (published BETWEEN 0 AND 65535), peers INTEGER
);
INSERT INTO network SELECT *, NULL, NULL, NULL FROM network_before;
DROP TABLE network_before;
ALTER TABLE http ADD COLUMN why TEXT;
",
];

/// The tables of events.
pub(super) const TABLES: [&str; 10] = [
    "exec",
    "network",
    "dns",
    "http",
    "file",
    "decision",
    "tool_call",
    "snapshot",
    "substitution",
    "model_call",
];

/// The version of a file's layout; one that is later than ours is refused.
pub(super) fn version(connection: &Connection, path: &Path) -> Result<usize> {
    let found: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|error| SessionError::database(path, error))?;
    let known = MIGRATIONS.len();
    usize::try_from(found).ok().filter(|found| *found <= known).ok_or_else(|| SessionError::Newer {
        path: path.to_owned(),
        found,
        known: known as i64,
    })
}

/// Brings a file to a version, in one transaction.
pub(super) fn migrate(connection: &mut Connection, path: &Path, to: usize) -> Result<()> {
    let failed = |error| SessionError::database(path, error);
    // Two readers may come first at the same time: the version is looked at by the one that writes.
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let from = version(&transaction, path)?;
    for step in MIGRATIONS.iter().take(to).skip(from) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", to as i64).map_err(failed)?;
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_of_the_first_version_is_brought_up() {
        let mut connection = Connection::open_in_memory().expect("memory");
        let path = Path::new("memory");
        migrate(&mut connection, path, 1).expect("first");
        connection
            .execute_batch(
                "INSERT INTO session VALUES (1, 'id', NULL, '[]', '/', 'namespace', 1, 1, NULL, NULL, NULL);
                 INSERT INTO network VALUES (7, 8, NULL, 'deny', 'tcp', 'a.org', NULL, 443, 9, 10, 11)",
            )
            .expect("rows");
        migrate(&mut connection, path, MIGRATIONS.len()).expect("all");
        let lost: i64 =
            connection.query_row("SELECT lost FROM session", [], |row| row.get(0)).expect("lost");
        assert_eq!((lost, version(&connection, path).expect("version")), (0, MIGRATIONS.len()));
        let all =
            "SELECT event, at, verdict, host, port, sent, received, duration, why FROM network";
        let row: String = connection
            .query_row(all, [], |row| {
                let text = |at| match row.get_ref(at)? {
                    rusqlite::types::ValueRef::Integer(number) => Ok(number.to_string()),
                    other => Ok(other.as_str_or_null()?.unwrap_or("-").to_owned()),
                };
                (0..9).map(text).collect::<rusqlite::Result<Vec<_>>>().map(|all| all.join(" "))
            })
            .expect("the row");
        assert_eq!(row, "7 8 deny a.org 443 9 10 11 -");
    }

    #[test]
    fn words_outside_an_enumeration_are_refused() {
        let mut connection = Connection::open_in_memory().expect("memory");
        migrate(&mut connection, Path::new("memory"), MIGRATIONS.len()).expect("all");
        let insert = |verdict: &str| {
            connection.execute(
                "INSERT INTO decision VALUES (?1, 0, NULL, ?2, 'read', '/', 'rule', 'landlock')",
                rusqlite::params![1, verdict],
            )
        };
        assert!(insert("maybe").is_err());
        assert!(insert("deny").is_ok());
    }
}
