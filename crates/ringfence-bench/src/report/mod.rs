//! What people read: tables for the terminal, Markdown, and one HTML file.

pub mod chart;
pub mod html;
pub mod markdown;
pub mod summary;
pub mod terminal;

use crate::error::{Error, Result, error};
use crate::model::Run;
use std::path::{Path, PathBuf};

/// The files of a result.
pub struct Files {
    /// The data.
    pub json: PathBuf,
    /// The report.
    pub html: PathBuf,
}

/// What a result's files are called: told apart by machine kind and time, sorting by time.
#[must_use]
pub fn stem(run: &Run) -> String {
    let stamp = run.recorded.replace([':', '-'], "");
    format!("ringfence-bench-linux-{}-{stamp}", run.host.arch)
}

/// Writes a result in its three forms.
pub fn write(run: &Run, dir: &Path) -> Result<Files> {
    let path = |ending: &str| dir.join(format!("{}.{ending}", stem(run)));
    let files = Files { json: path("json"), html: path("html") };
    save(&files.json, &run.to_json())?;
    save(&path("md"), &markdown::text(run))?;
    save(&files.html, &html::page(run))?;
    Ok(files)
}

/// Writes a file whole or not at all.
pub fn save(path: &Path, text: &str) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, path))
        .map_err(|cause| Error::file("write", path, cause))
}

/// The result files in a folder, the oldest first by name.
pub fn results_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|cause| Error::file("read", dir, cause))?;
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ringfence-bench-") && name.ends_with(".json")
    };
    let mut found: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(ours).collect();
    found.sort();
    Ok(found)
}

/// Reads a result from its file, or the newest from a folder.
pub fn open(path: &Path) -> Result<Run> {
    if !path.is_dir() {
        return Run::load(path);
    }
    let newest = results_in(path)?.pop();
    Run::load(&newest.ok_or_else(|| error!("{} holds no benchmark result", path.display()))?)
}

/// `bench report`: the readable forms of an old result.
pub fn again(result: &Path, out: &Path) -> Result<i32> {
    let run = open(result)?;
    std::fs::create_dir_all(out).map_err(|cause| Error::file("make", out, cause))?;
    let path = |ending: &str| out.join(format!("{}.{ending}", stem(&run)));
    save(&path("md"), &markdown::text(&run))?;
    save(&path("html"), &html::page(&run))?;
    crate::print(&format!("written: {}\n", path("html").display()))?;
    Ok(0)
}
