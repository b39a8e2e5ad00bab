//! What a session bus would be made of on this host.

use super::{PROXY, TRACE, VARIABLE};
use crate::facts::{BusFacts, Facts, Kind, PathFacts};
use crate::inputs::Inputs;
use ringfence_policy::{Policy, Resolver, bus_socket, host_program};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Adds the session bus to the facts, where the policy has rules for it or what is asked of it is to
/// be noted.
pub fn look(policy: &Policy, facts: &mut Facts, inputs: &Inputs) {
    let trace = std::env::var_os(TRACE).map(PathBuf::from).filter(|path| path.is_absolute());
    if trace.is_some() {
        inputs.fleeting("what is asked of the bus is noted");
    }
    if trace.is_some() || !policy.dbus.is_empty() {
        let (program, address) = (found(inputs), address(facts.user.0, inputs));
        facts.bus = Some(BusFacts { program, address, trace });
    }
}

/// Where the filter is.
fn found(inputs: &Inputs) -> Option<PathBuf> {
    host_program::program(PROXY, inputs.variable("PATH").as_deref(), inputs)
}

/// Whether a path leads to what is there and is no directory.
fn is_file(path: &Path, inputs: &Inputs) -> bool {
    let real = Resolver::new(inputs).real(path);
    real.is_ok_and(|real| real.exists && inputs.kind(&real.path) == Kind::File)
}

/// The user's own bus (the D-Bus specification's and systemd's ways to name it).
fn address(user: u32, inputs: &Inputs) -> Result<String, String> {
    let named = inputs.variable(VARIABLE).filter(|named| !named.is_empty());
    let usual = || {
        let path = PathBuf::from(format!("/run/user/{user}/bus"));
        let address = OsString::from(format!("unix:path={}", path.display()));
        is_file(&path, inputs).then_some(address)
    };
    let address = named.or_else(usual).ok_or_else(|| format!("{VARIABLE} names none"))?;
    let address = address.into_string().map_err(|_| format!("{VARIABLE} is no text"))?;
    match sockets(&address) {
        Some(paths) if !paths.iter().any(|path| is_file(path, inputs)) => {
            Err(format!("there is none at {address}, which {VARIABLE} names"))
        }
        _ => Ok(address),
    }
}

/// The sockets of an address, where all that it names are sockets with a path.
fn sockets(address: &str) -> Option<Vec<PathBuf>> {
    address.split(';').filter(|one| !one.is_empty()).map(bus_socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_specification_writes_them() {
        let paths = |address: &str| {
            let paths = sockets(address)?;
            Some(paths.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
        };
        let one = Some(vec!["/run/user/7/bus".to_owned()]);
        assert_eq!(paths("unix:path=/run/user/7/bus"), one);
        assert_eq!(paths("unix:guid=00ff,path=/run/user/7/bus;"), one);
        let two = Some(vec!["/tmp/a b".to_owned(), "/c;d".to_owned()]);
        assert_eq!(paths("unix:path=/tmp/a%20b;unix:path=/c%3bd,guid=0"), two);
        // Whether there is one is known only to who connects.
        for other in ["unix:abstract=/tmp/x", "tcp:host=a,port=1", "unix:path=/a;tcp:host=b"] {
            assert_eq!(paths(other), None, "{other}");
        }
        for broken in ["unix:path=/a%", "unix:path=/a%2", "unix:path=/a%zz", "path=/a", "unix:"] {
            assert_eq!(paths(broken), None, "{broken}");
        }
    }
}
