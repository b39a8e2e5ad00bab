//! Limits: by control groups where we may make them, else by the closest sound mechanism, else
//! refused.

use super::{PlanError, Planning, view};
use crate::plan::{LimitStep, Tier};
use ringfence_policy::Layer;

pub(super) fn steps(planning: &mut Planning<'_>, tier: Tier) -> Result<Vec<LimitStep>, PlanError> {
    let limits = planning.policy.limits.clone();
    let mut steps = vec![LimitStep::CoreFiles];
    let mut group = Group::default();
    if let Some(bytes) = limits.memory {
        let swap = ("memory.swap.max", "0".to_owned());
        let v2 = [("memory.max", bytes.to_string()), swap];
        let v1 = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
        let v1 = v1.map(|file| (file, bytes.to_string()));
        if !group.add(planning, "memory", &v2, &v1) {
            let what = "memory cannot be limited: no memory control group may be made here, and \
                        limits of single processes do not add up";
            let remedy =
                "run in a delegated control group (systemd-run --user --scope -p Delegate=yes)";
            planning.missing(Layer::MemoryLimit, what.to_owned(), remedy)?;
        }
    }
    if let Some(count) = limits.pids {
        let value = [("pids.max", count.to_string())];
        if !group.add(planning, "pids", &value, &value) {
            // RLIMIT_NPROC counts within a user namespace (Linux 5.14), but never for root's uid.
            if tier == Tier::Namespace && planning.facts.user.0 != 0 {
                steps.push(LimitStep::Processes { count });
            } else {
                let what = "processes cannot be limited: no pids control group may be made here, \
                            and RLIMIT_NPROC does not count for root or across sandboxes";
                let remedy = "run in a delegated control group";
                planning.missing(Layer::PidsLimit, what.to_owned(), remedy)?;
            }
        }
    }
    if let Some(thousandths) = limits.cpus {
        let period = 100_000u64;
        let quota = u64::from(thousandths) * period / 1000;
        let v2 = [("cpu.max", format!("{quota} {period}"))];
        let v1 =
            [("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
        if !group.add(planning, "cpu", &v2, &v1) {
            if thousandths % 1000 == 0 && thousandths > 0 {
                steps.push(LimitStep::Processors { count: thousandths / 1000 });
            } else {
                let what = "a fraction of a processor cannot be given: no cpu control group may \
                            be made here (whole processors work)";
                planning.missing(Layer::CpusLimit, what.to_owned(), "use a whole number")?;
            }
        }
    }
    steps.extend(group.steps(planning));
    if let Some(count) = limits.open_files {
        steps.push(LimitStep::OpenFiles { count });
    }
    if limits.disk.is_some() {
        match tier {
            Tier::Namespace => steps.extend(view::size_limit(planning)),
            Tier::Process => {
                let what = "the process tier has no directories of its own to limit".to_owned();
                planning.missing(Layer::DiskLimit, what, "use the namespace tier")?;
            }
        }
    }
    if let Some(timeout) = limits.timeout {
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        steps.push(LimitStep::Timeout { milliseconds });
    }
    Ok(steps)
}

/// What goes into control groups.
#[derive(Default)]
struct Group {
    v2: Vec<(String, String)>,
    v1: Vec<(String, Vec<(String, String)>)>,
}

impl Group {
    /// Takes the settings for one controller, if a group with it can be made.
    fn add(
        &mut self,
        planning: &Planning<'_>,
        controller: &str,
        v2: &[(&str, String)],
        v1: &[(&str, String)],
    ) -> bool {
        let own = |list: &[(&str, String)]| {
            list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<Vec<_>>()
        };
        let cgroups = &planning.facts.cgroups;
        if cgroups.v2.as_ref().is_some_and(|(_, all)| all.iter().any(|name| name == controller)) {
            self.v2.extend(own(v2));
            return true;
        }
        if cgroups.v1.contains_key(controller) {
            self.v1.push((controller.to_owned(), own(v1)));
            return true;
        }
        false
    }

    fn steps(self, planning: &Planning<'_>) -> Vec<LimitStep> {
        let cgroups = &planning.facts.cgroups;
        let mut steps = Vec::new();
        if let (false, Some((parent, _))) = (self.v2.is_empty(), &cgroups.v2) {
            steps.push(LimitStep::Cgroup { parent: parent.clone(), settings: self.v2 });
        }
        for (controller, settings) in self.v1 {
            if let Some(parent) = cgroups.v1.get(&controller) {
                steps.push(LimitStep::CgroupV1 { parent: parent.clone(), settings });
            }
        }
        steps
    }
}
