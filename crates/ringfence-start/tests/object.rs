//! What runs before libc is up may lean on nothing: looks through the crate's object code for what
//! slipped in (a panic, `memcpy`, a table of addresses that nobody has relocated yet).

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The object code of the crate, compiled as for a release.
fn code() -> &'static [u8] {
    static CODE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let objects = objects();
        // In one unit: a second one would be reached through a table.
        assert_eq!(objects.len(), 1, "{objects:?}");
        std::fs::read(&objects[0]).expect("it was made just now")
    });
    &CODE
}

fn objects() -> Vec<PathBuf> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("object");
    let _ = std::fs::remove_dir_all(&place);
    let done = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["rustc", "--quiet", "--release", "--lib", "--target-dir"])
        .arg(&place)
        .args(["--", "--emit=obj"])
        .env_remove("CARGO_PROFILE_RELEASE_LTO")
        .status()
        .expect("cargo");
    assert!(done.success());
    let mut found = Vec::new();
    let mut below = vec![place];
    while let Some(directory) = below.pop() {
        for entry in directory.read_dir().expect("a directory").flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                below.push(path);
            } else if name.starts_with("ringfence_start") && name.ends_with(".o") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn it_asks_for_nothing_but_the_ordinary_start() {
    let object = object::File::parse(code()).expect("an object file");
    let undefined: BTreeSet<String> = object
        .symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| !name.is_empty() && name != "_GLOBAL_OFFSET_TABLE_")
        .collect();
    // And for where the program begins and its code ends, which the linker says: taken relative to the code, not from a table.
    assert_eq!(undefined, ["__executable_start", "_start", "etext"].map(str::to_owned).into());
    // The control: what is to be found there is there.
    assert!(object.symbols().any(|symbol| symbol.name() == Ok("ringfence_entry")));
}

#[test]
fn its_data_holds_no_addresses() {
    let object = object::File::parse(code()).expect("an object file");
    for section in object.sections() {
        let data = matches!(
            section.kind(),
            SectionKind::Data | SectionKind::ReadOnlyData | SectionKind::ReadOnlyDataWithRel
        );
        let name = section.name().unwrap_or_default().to_owned();
        // Unwinding tables are nobody's business there.
        if !data || name.starts_with(".eh_frame") || name.starts_with(".debug") {
            continue;
        }
        for (at, relocation) in section.relocations() {
            // Distances within the program need no relocation when it starts.
            let distance = matches!(relocation.kind(), object::RelocationKind::Relative);
            let target = match relocation.target() {
                RelocationTarget::Symbol(index) => object
                    .symbol_by_index(index)
                    .and_then(|symbol| symbol.name().map(str::to_owned))
                    .unwrap_or_default(),
                other => format!("{other:?}"),
            };
            assert!(distance, "{name}+{at:#x} holds the address of {target}");
        }
    }
}
