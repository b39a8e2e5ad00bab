//! What this host offers: each layer, each tier, and what to do about what is missing.

use crate::facts::{Availability, Facts};
use serde::Serialize;
use std::path::Path;

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// How a finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Works.
    Ok,
    /// Something is weaker, or slower, than it could be.
    Partial,
    /// Missing.
    Missing,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The layer or tier.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Kernel release.
    pub kernel: String,
    /// Effective user.
    pub user: u32,
    /// The strongest tier that works.
    pub tier: &'static str,
    /// Layer by layer.
    pub findings: Vec<Finding>,
}

/// Settings of the host that explain what is missing; tests fill them in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// In a container, and which sign says so.
    pub container: Option<&'static str>,
    /// AppArmor lets only profiled programs make user namespaces.
    pub apparmor_restricts: bool,
    /// `/proc/sys/user/max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `/sys/kernel/security/lsm`, where it can be read.
    pub security_modules: Option<String>,
    /// Where this program is installed, for the AppArmor profile.
    pub program: String,
}

impl Surroundings {
    /// This host's.
    pub fn look() -> Surroundings {
        let read =
            |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let signs = ["/.dockerenv", "/run/.containerenv"];
        Surroundings {
            container: signs.into_iter().find(|sign| Path::new(sign).exists()),
            apparmor_restricts: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                .as_deref()
                == Some("1"),
            max_user_namespaces: read("/proc/sys/user/max_user_namespaces")
                .and_then(|text| text.parse().ok()),
            security_modules: read("/sys/kernel/security/lsm"),
            program: std::env::current_exe().map_or_else(
                |_| "/usr/bin/ringfence".to_owned(),
                |path| path.display().to_string(),
            ),
        }
    }
}

/// Makes the report: a pure function.
pub fn report(facts: &Facts, around: &Surroundings) -> Report {
    let findings = vec![
        kernel(facts),
        namespaces(facts, around),
        landlock(facts, around),
        seccomp(facts),
        notify(facts),
        cgroups(facts),
    ];
    let landlock = facts.landlock_abi > 0;
    let tier = match (facts.namespaces.yes(), landlock && facts.seccomp.yes()) {
        (true, true) => "namespace",
        (false, true) => "process",
        (_, false) => "none",
    };
    Report { schema: SCHEMA, kernel: facts.kernel.clone(), user: facts.user.0, tier, findings }
}

fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding { name, state: State::Ok, found: found.into(), remedy: None }
}

fn lacking(name: &'static str, state: State, found: impl Into<String>, remedy: &str) -> Finding {
    Finding { name, state, found: found.into(), remedy: Some(remedy.to_owned()) }
}

/// `major.minor` of a release.
pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-']).map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn kernel(facts: &Facts) -> Finding {
    match version(&facts.kernel) {
        Some(version) if version < (5, 13) => lacking(
            "kernel",
            State::Missing,
            format!("Linux {}", facts.kernel),
            "ringfence needs Linux 5.13 (Landlock, the new mount API, close_range)",
        ),
        _ => ok("kernel", format!("Linux {}", facts.kernel)),
    }
}

fn namespaces(facts: &Facts, around: &Surroundings) -> Finding {
    let Availability::No(reason) = &facts.namespaces else {
        return ok("namespaces", "user, mount, PID, network, IPC, UTS and cgroup namespaces work");
    };
    let profile = format!(
        "install an AppArmor profile for this program, as root:\n  \
         printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile ringfence {} flags=(unconfined) {{\\n  userns,\\n}}\\n' > /etc/apparmor.d/ringfence\n  \
         apparmor_parser -r /etc/apparmor.d/ringfence",
        around.program
    );
    let remedy = if around.apparmor_restricts && facts.user.0 != 0 {
        profile.as_str()
    } else if around.max_user_namespaces == Some(0) {
        "allow user namespaces, as root: sysctl -w user.max_user_namespaces=15000"
    } else if around.container.is_some() {
        "start the container with --security-opt seccomp=unconfined --security-opt \
         systempaths=unconfined (Docker, Podman), or use --tier process"
    } else {
        "use --tier process, which needs no namespaces"
    };
    lacking("namespaces", State::Missing, reason.clone(), remedy)
}

fn landlock(facts: &Facts, around: &Surroundings) -> Finding {
    let abi = facts.landlock_abi;
    let lacks = |what: &str, kernel: &str| {
        lacking(
            "Landlock",
            State::Partial,
            format!("version {abi}: {what}"),
            &format!("Linux {kernel} has it; the namespace tier does not need it"),
        )
    };
    match abi {
        0 => {
            let disabled =
                around.security_modules.as_ref().is_some_and(|list| !list.contains("landlock"));
            let remedy = if disabled {
                "add landlock to the kernel's lsm= boot parameter"
            } else {
                "use a kernel with CONFIG_SECURITY_LANDLOCK (Linux 5.13) and lsm=landlock,…; in a \
                 container, let its seccomp profile allow the landlock calls"
            };
            lacking("Landlock", State::Missing, "not available", remedy)
        }
        1 | 2 => lacks("truncation is not controlled", "6.2"),
        3 => lacks("TCP ports are not controlled", "6.7"),
        4 => lacks("device ioctls are not controlled", "6.10"),
        5 => lacks("abstract sockets and signals are not scoped", "6.12"),
        _ => ok("Landlock", format!("version {abi}")),
    }
}

fn seccomp(facts: &Facts) -> Finding {
    match &facts.seccomp {
        Availability::Yes => ok("seccomp", "system call filters work"),
        Availability::No(reason) => lacking(
            "seccomp",
            State::Missing,
            reason.clone(),
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

fn notify(facts: &Facts) -> Finding {
    match &facts.seccomp_notify {
        Availability::Yes => ok("seccomp notification", "supervised calls work"),
        Availability::No(reason) => {
            let remedy = facts.notify_remedy();
            lacking("seccomp notification", State::Partial, reason.clone(), remedy)
        }
    }
}

fn cgroups(facts: &Facts) -> Finding {
    let second = facts.cgroups.v2.as_ref().map(|(path, controllers)| {
        format!("version 2 below {}: {}", path.display(), controllers.join(", "))
    });
    let first: Vec<&str> = facts.cgroups.v1.keys().map(String::as_str).collect();
    match (second, first.is_empty()) {
        (Some(found), _) => ok("control groups", found),
        (None, false) => ok("control groups", format!("version 1: {}", first.join(", "))),
        (None, true) => lacking(
            "control groups",
            State::Partial,
            "none may be made here: --memory is refused, --pids and --cpus use other means",
            "start from a delegated group: systemd-run --user --scope -p Delegate=yes ringfence run …",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Cgroups;

    fn facts() -> Facts {
        Facts {
            data_layers: Availability::No("an older kernel".to_owned()),
            layers: Availability::Yes,
            kernel: "6.12.0-1-amd64".to_owned(),
            user: (1000, 1000),
            namespaces: Availability::Yes,
            landlock_abi: 6,
            seccomp: Availability::Yes,
            seccomp_notify: Availability::Yes,
            inside: false,
            cgroups: Cgroups::default(),
            environment: Vec::new(),
            terminal: None,
            temporary: "/tmp".into(),
            libraries: None,
            bus: None,
            machine: None,
        }
    }

    fn finding(facts: &Facts, around: &Surroundings, name: &str) -> Finding {
        let report = report(facts, around);
        report.findings.into_iter().find(|finding| finding.name == name).expect("a finding")
    }

    #[test]
    fn ubuntus_restriction_is_named_with_a_profile_to_install() {
        let closed = Facts { namespaces: Availability::No("EPERM".to_owned()), ..facts() };
        let around = Surroundings {
            apparmor_restricts: true,
            program: "/opt/ringfence".to_owned(),
            ..Surroundings::default()
        };
        let found = finding(&closed, &around, "namespaces");
        assert_eq!(found.state, State::Missing);
        let remedy = found.remedy.expect("a remedy");
        assert!(remedy.contains("/etc/apparmor.d/ringfence") && remedy.contains("/opt/ringfence"));
        assert_eq!(report(&closed, &around).tier, "process");
    }

    #[test]
    fn containers_and_closed_sysctls_have_remedies_of_their_own() {
        let closed = Facts { namespaces: Availability::No("EPERM".to_owned()), ..facts() };
        let docker = Surroundings { container: Some("/.dockerenv"), ..Surroundings::default() };
        let remedy = finding(&closed, &docker, "namespaces").remedy.expect("a remedy");
        assert!(remedy.contains("seccomp=unconfined"));
        let sysctl = Surroundings { max_user_namespaces: Some(0), ..Surroundings::default() };
        let remedy = finding(&closed, &sysctl, "namespaces").remedy.expect("a remedy");
        assert!(remedy.contains("max_user_namespaces=15000"));
    }

    #[test]
    fn old_kernels_and_missing_landlock_are_told_apart() {
        let old = Facts { kernel: "5.10.0".to_owned(), landlock_abi: 0, ..facts() };
        assert_eq!(finding(&old, &Surroundings::default(), "kernel").state, State::Missing);
        let off = Surroundings {
            security_modules: Some("lockdown,capability,yama".to_owned()),
            ..Surroundings::default()
        };
        let remedy = finding(&old, &off, "Landlock").remedy.expect("a remedy");
        assert!(remedy.contains("boot parameter"));
        for (abi, state) in
            [(1, State::Partial), (5, State::Partial), (6, State::Ok), (7, State::Ok)]
        {
            let facts = Facts { landlock_abi: abi, ..facts() };
            assert_eq!(finding(&facts, &Surroundings::default(), "Landlock").state, state, "{abi}");
        }
    }
}
