//! Write-ahead logging for a database that several may make at the same time.

use rusqlite::{Connection, ErrorCode};
use std::time::{Duration, Instant};

/// How long one waits for the others.
const WAIT: Duration = Duration::from_secs(10);
/// How long between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// Sets the journal's mode, which the file keeps.
///
/// This takes the file for one connection alone, and SQLite does not wait for that: its busy handler
/// is not called where two might wait for each other (<https://sqlite.org/c3ref/busy_handler.html>).
///
/// # Errors
/// SQLite's; `SQLITE_BUSY` only once the others have had their time.
pub fn log_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + WAIT;
    loop {
        match connection.execute_batch("PRAGMA journal_mode = WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that holds the file lets go of it in the end: who comes meanwhile waits.
    #[test]
    fn another_one_at_the_same_time_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("it.db");
        let other = Connection::open(&path).expect("opened");
        other.execute_batch("CREATE TABLE t (n); BEGIN EXCLUSIVE").expect("alone");
        let connection = Connection::open(&path).expect("opened");
        let busy = connection.execute_batch("PRAGMA journal_mode = WAL").expect_err("held");
        assert_eq!(busy.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let connection = Connection::open(&path).expect("opened");
                log_ahead(&connection).map(|()| connection)
            });
            other.execute_batch("COMMIT").expect("let go");
            let connection = waits.join().expect("no panic").expect("in the end");
            let mode: String =
                connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode");
            assert_eq!(mode, "wal");
        });
    }
}
