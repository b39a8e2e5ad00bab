//! What is to be seen of a program that does not end: what each of its processes waits for.

use std::fs;
use std::path::Path;

/// One line for each thread of a process and of its descendants: whose, its state, where in the kernel it waits,
/// how long it ran (clock ticks, user and system), and its command line's beginning.
pub fn describe(root: u32) -> String {
    let mut pids: Vec<u32> = numbers(Path::new("/proc")).filter(|&pid| below(pid, root)).collect();
    pids.sort_unstable();
    describe_all(&pids)
}

/// The same of these processes.
pub fn describe_all(pids: &[u32]) -> String {
    pids.iter().flat_map(|&pid| threads(pid)).collect()
}

/// The entries of a directory that are numbers.
pub fn numbers(directory: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process is this one or descends from it.
pub fn below(pid: u32, root: u32) -> bool {
    let parent = |pid: &u32| field(Path::new(&format!("/proc/{pid}/stat")), 1)?.parse().ok();
    std::iter::successors(Some(pid), parent).take(32).any(|pid| pid == root)
}

/// A field of `stat` (proc_pid_stat(5)), counted from the state, which is 0.
fn field(path: &Path, at: usize) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(at).map(ToOwned::to_owned)
}

fn threads(pid: u32) -> Vec<String> {
    let process = format!("/proc/{pid}");
    let words = fs::read(format!("{process}/cmdline")).unwrap_or_default();
    let words: String =
        String::from_utf8_lossy(&words).replace('\0', " ").chars().take(100).collect();
    let line = |task: u32| {
        let place = Path::new(&process).join(format!("task/{task}"));
        let read = |name: &str| {
            let text = fs::read_to_string(place.join(name)).unwrap_or_default();
            text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
        };
        let stat = |at| field(&place.join("stat"), at).unwrap_or_default();
        format!(
            "\n  {pid}/{task} {} {} wchan {} call {} ran {}+{}: {words}",
            read("comm"),
            stat(0),
            read("wchan"),
            read("syscall"),
            stat(11),
            stat(12)
        )
    };
    numbers(&Path::new(&process).join("task")).map(line).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_program_that_waits_is_described() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep(1)");
        let (mine, childs) = (super::describe(std::process::id()), super::describe(child.id()));
        child.kill().expect("killed");
        child.wait().expect("its end");
        let own = format!("\n  {0}/{0} ", child.id());
        assert!(mine.contains(&own) && childs.starts_with(&own), "{mine} {childs}");
        assert_eq!(childs.lines().count(), 2, "{childs}");
    }
}
