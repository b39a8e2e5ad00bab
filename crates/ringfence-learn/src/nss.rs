//! Which modules the C library opens to answer questions about users, groups and hosts.

use std::collections::BTreeSet;

/// The modules for databases, by `nsswitch.conf(5)`. What it does not name is answered from
/// files, and hosts by DNS too.
pub fn modules(configuration: &[u8], databases: &BTreeSet<&str>) -> BTreeSet<Vec<u8>> {
    let mut modules = BTreeSet::new();
    for database in databases {
        let line = configuration.split(|byte| *byte == b'\n').find_map(|line| {
            let line = line.split(|byte| *byte == b'#').next()?;
            let colon = memchr::memchr(b':', line)?;
            (line[..colon].trim_ascii() == database.as_bytes()).then(|| &line[colon + 1..])
        });
        let line = line.unwrap_or(if *database == "hosts" { b"files dns" } else { b"files" });
        let mut action = false;
        for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            // `[NOTFOUND=return]` says what follows from an answer; it may hold blanks.
            action |= word.starts_with(b"[");
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            if !action && word.len() <= 64 && word.iter().all(plain) {
                modules.insert([b"libnss_", word, b".so.2"].concat());
            }
            action &= !word.ends_with(b"]");
        }
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_those_of_the_databases_asked() {
        let text = b"passwd: files systemd # x\nhosts:  files mdns [NOTFOUND=return] dns\ngroup: ../evil/x\n";
        let named = |databases: &[&'static str]| {
            let found = modules(text, &databases.iter().copied().collect());
            found.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(named(&["passwd"]), ["libnss_files.so.2", "libnss_systemd.so.2"]);
        assert_eq!(named(&["hosts"]), ["libnss_dns.so.2", "libnss_files.so.2", "libnss_mdns.so.2"]);
        assert!(named(&["group"]).is_empty());
        assert_eq!(named(&["rpc"]), ["libnss_files.so.2"]);
    }
}
