//! Group `escape`: which ways out are closed.

use super::{Entry, Outcome, Stop};
use crate::background::{Background, Server};
use crate::bench::Bench;
use crate::error::{Error, Result, error};
use crate::lanes::{Kind, Lane};
use crate::model::{Better, Group, Measure, Table};
use crate::tool::attack::{self, Attack, SECRET};
use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

pub const ENTRY: Entry = Entry {
    name: "escape",
    summary: "ways out of a sandbox, as a table: ours beside the peers'",
    method: "Each attack is a small program run in every lane with a home directory of its own, a secret in \
             the environment, a process, sockets and a directory outside to aim at. It runs without a sandbox \
             first: an attack that does not work there proves nothing and is marked so. An attack on a file \
             counts as open only when the file on the host has changed. Peers are configured as in `start`: \
             like ringfence by default, as far as they can be.",
    seconds: (20.0, 12.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let lanes = bench.lanes();
    if let Some(git) = crate::work::find("git") {
        bench.work.make_repository(&git)?;
    }
    let range = Range::prepare(bench)?;
    let mut columns = vec!["attack".to_owned(), "gives".into()];
    columns.extend(lanes[1..].iter().map(|lane| lane.name.clone()));
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    bench.progress.workloads(attack::ALL.len());
    for attack in attack::ALL {
        let mut row = vec![attack.name.to_owned(), attack.gives.into()];
        for lane in &lanes {
            bench.progress.show(&format!("{} · {}", attack.name, lane.name));
            let verdict = range.try_attack(bench, lane, attack);
            if matches!(lane.kind, Kind::Bare) {
                match verdict {
                    Ok(Verdict::Open) => continue,
                    Ok(Verdict::Stopped(why)) => missing.push(format!("{} ({why})", attack.name)),
                    Err(cause) => missing.push(format!("{} ({cause})", attack.name)),
                }
                break;
            }
            row.push(match &verdict {
                Ok(Verdict::Open) => "OPEN".into(),
                Ok(Verdict::Stopped(_)) => "stopped".into(),
                Err(_) => "failed".into(),
            });
            group.measures.push(measure(attack, lane, verdict));
        }
        if row.len() == columns.len() {
            rows.push(row);
        }
        bench.progress.next();
    }
    if rows.is_empty() {
        return Err(Stop::Failed(error!(
            "no attack works even without a sandbox: {}",
            missing.join(", ")
        )));
    }
    rows.push(totals(&rows));
    group.tables.push(Table { title: "escape corpus".into(), columns, rows });
    if !missing.is_empty() {
        group.notes.push(format!(
            "not possible on this host even without a sandbox: {}",
            missing.join(", ")
        ));
    }
    Ok(())
}

fn totals(rows: &[Vec<String>]) -> Vec<String> {
    let count = |column: usize| rows.iter().filter(|row| row[column] == "stopped").count();
    let mut total = vec!["all".to_owned(), String::new()];
    total.extend((2..rows[0].len()).map(|column| format!("{} of {}", count(column), rows.len())));
    total
}

/// What became of an attack.
enum Verdict {
    /// It worked.
    Open,
    /// It did not, for this reason.
    Stopped(String),
}

fn measure(attack: &Attack, lane: &Lane, verdict: Result<Verdict>) -> Measure {
    let (samples, error) = match verdict {
        Ok(Verdict::Open) => (vec![0.0], String::new()),
        Ok(Verdict::Stopped(_)) => (vec![1.0], String::new()),
        Err(cause) => (Vec::new(), cause.to_string()),
    };
    Measure {
        workload: attack.name.into(),
        lane: lane.name.clone(),
        metric: "stopped".into(),
        unit: "yes".into(),
        better: Better::Higher,
        baseline: String::new(),
        samples,
        error,
    }
}

/// What the attacks aim at.
struct Range {
    home: PathBuf,
    outside: PathBuf,
    victim: Background,
    server: Server,
    _sockets: [UnixListener; 2],
}

impl Range {
    fn prepare(bench: &mut Bench) -> Result<Range> {
        let home = bench.work.fresh("home")?;
        let outside = bench.work.fresh("outside")?;
        let keys = home.join(".ssh");
        std::fs::create_dir(&keys).map_err(|cause| Error::file("make", &keys, cause))?;
        crate::work::write(&keys.join("id_bench"), b"secret\n")?;
        let command = bench.plain(&bench.tool("hold", &[]))?;
        let mut victim = Background::start(bench, &command)?;
        victim.line()?;
        let failed = |cause: std::io::Error| error!("a Unix socket: {cause}");
        let name = attack::abstract_name(victim.pid());
        let abstract_socket = SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .map_err(failed)?;
        let socket = UnixListener::bind(outside.join("socket")).map_err(failed)?;
        let server = Server::start(bench)?;
        Ok(Range { home, outside, victim, server, _sockets: [abstract_socket, socket] })
    }

    /// The file that an attack leaves on the host when it works, if it is one that leaves a file.
    fn trace_of(&self, bench: &Bench, attack: &Attack) -> Option<PathBuf> {
        let space = &bench.work.space;
        match attack.name {
            "write ~/.bashrc" => Some(self.home.join(".bashrc")),
            "write beside the project" => Some(self.outside.join("file")),
            "write .git/hooks" => Some(space.join(".git/hooks/pre-commit")),
            "rename .git away" => Some(space.join(".git.moved")),
            "create .mcp.json" => Some(space.join(".mcp.json")),
            _ => None,
        }
    }

    fn try_attack(&self, bench: &mut Bench, lane: &Lane, attack: &Attack) -> Result<Verdict> {
        let (victim, port) = (self.victim.pid().to_string(), self.server.port.to_string());
        let words: [&OsStr; 4] =
            [attack.name.as_ref(), self.outside.as_os_str(), victim.as_ref(), port.as_ref()];
        let argv = bench.tool("attack", &words);
        let line: Vec<OsString> = lane.wrap(&bench.work, &argv, &[])?;
        let variables = [("HOME", self.home.as_os_str()), (SECRET, OsStr::new("hunter2"))];
        let command = bench.plain_with(&line, &variables)?;
        let ran = bench.run(&command, true)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        let left = self.trace_of(bench, attack).map(|path| (path.exists(), path));
        let left_nothing = left.is_none();
        let changed = left.as_ref().is_none_or(|(exists, _)| *exists);
        self.restore(bench, left.map(|(_, path)| path))?;
        match said.trim() {
            "open" if changed => Ok(Verdict::Open),
            "open" => Ok(Verdict::Stopped("the host is unchanged".into())),
            other => match other.strip_prefix("stopped: ") {
                Some(why) if !changed || left_nothing => Ok(Verdict::Stopped(why.into())),
                Some(_) => Ok(Verdict::Open), // refused, it said, but the host has changed
                None => Err(error!("the attack said {other:?}")),
            },
        }
    }

    /// Puts back what an attack that worked has changed.
    fn restore(&self, bench: &Bench, left: Option<PathBuf>) -> Result<()> {
        let Some(path) = left.filter(|path| path.exists()) else { return Ok(()) };
        if path.ends_with(".git.moved") {
            let git = bench.work.space.join(".git");
            return std::fs::rename(&path, &git)
                .map_err(|cause| Error::file("restore", &git, cause));
        }
        std::fs::remove_file(&path).map_err(|cause| Error::file("remove", &path, cause))
    }
}
