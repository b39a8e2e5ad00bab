//! The vm tier: `ringfence vm`, machines for `run`, and the programs at both ends of a guest's stream.

use crate::error::Fault;
use crate::fork::Source;
use crate::generate::line;
use crate::help;
use crate::options::{PLAIN, Parsed, parse};
use ringfence_guest::bridge::{self, End, Settings};
use ringfence_policy::{NetworkMode, Policy, TierChoice, shown, suggest};
use ringfence_sandbox::facts::MachineFacts;
use ringfence_sandbox::plan::Plan;
use ringfence_sandbox::trace::Trace;
use ringfence_sandbox::vm::{self, Assets, Machine, Monitor};
use ringfence_sandbox::{Facts, LaunchError};
use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;

/// What a guest's first process is called with.
pub const AGENT: &str = "guest-agent";

/// Set for guests that have virtualisation of their own, in which the way by KVM is tried.
const NESTED: &str = "RINGFENCE_VM_NESTED";

/// The programs that only ringfence itself starts.
pub fn inner(name: &str, arguments: &mut dyn Iterator<Item = OsString>) -> Option<u8> {
    match name {
        AGENT if std::process::id() == 1 => {
            if let Err(why) = ringfence_guest::agent::live() {
                ringfence_sys::say!("ringfence: {why}");
            }
            // The kernel ends with its first process, and the machine with the kernel.
            Some(0)
        }
        #[cfg(target_arch = "x86_64")]
        vm::RESTORE => Some(vm::checkpoint::restore::run(arguments)),
        #[cfg(feature = "krun")]
        vm::krun::MACHINE => Some(vm::krun::run(arguments)),
        vm::BRIDGE => {
            let settings = Settings::of(arguments)?;
            Some(end(bridge::run(&settings)))
        }
        vm::EXEC => Some(end(bridge::exec(arguments.map(OsString::into_vec).collect()))),
        _ => None,
    }
}

/// Ends as the guest's command did.
fn end(end: End) -> u8 {
    match end {
        End::Code(code) => code,
        End::Signal(signal) => {
            ringfence_sys::signal::raise_default(signal.into());
            signal.saturating_add(128)
        }
        End::Failed(code, why) => {
            if !why.is_empty() {
                // What a guest says may be in it.
                ringfence_sys::say!("ringfence: {}", shown::message(&why));
            }
            code
        }
    }
}

/// The caller's home.
pub fn home() -> PathBuf {
    ringfence_sys::identity::home()
        .filter(|home| home.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/"))
}

/// Refuses options that are no part of a policy and that a guest cannot have.
///
/// # Errors
/// The option, the reason, and what to do.
pub fn check(policy: &Policy, parsed: &Parsed) -> Result<(), Fault> {
    /// They look at the calls of the command's processes.
    const LOOK: [&str; 2] = ["record-programs", "trace-missing"];
    let given = LOOK.iter().find(|option| parsed.has(option));
    match given.filter(|_| policy.tier == TierChoice::Vm) {
        Some(option) => Err(Fault::usage(format!(
            "--{option} does not go with the vm tier: what a guest's programs ask for, they ask \
             of its own kernel; use --tier namespace"
        ))),
        None => Ok(()),
    }
}

/// What the vm tier of a policy has to work with: facts for the planner.
pub fn look(policy: &Policy, facts: &mut Facts) {
    if policy.tier == TierChoice::Vm {
        facts.machine = Some(found());
    }
}

/// What serves, or why nothing does.
fn found() -> Result<MachineFacts, String> {
    let monitor = monitor()?;
    let assets = Assets::find(&home(), monitor)?;
    let accelerator = vm::accel::known(&vm::assets::cache(&home()));
    monitor.with(accelerator)?;
    let nested = std::env::var_os(NESTED).is_some();
    Ok(MachineFacts { kernel: assets.kernel.release, accelerator, monitor, nested })
}

/// What `doctor` says of this tier.
pub fn finding() -> ringfence_sandbox::doctor::Finding {
    vm::finding(&home(), std::env::var_os(vm::monitor::VARIABLE).as_deref())
}

/// The monitor that is asked for.
fn monitor() -> Result<Monitor, String> {
    Monitor::of(std::env::var_os(vm::monitor::VARIABLE).as_deref())
}

/// A machine for a run, and what stands in the sandbox for the command.
pub struct Guest {
    /// For the launcher to attend to.
    pub machine: Rc<RefCell<Machine>>,
    program: PathBuf,
}

/// Starts the machine that a policy asks for.
///
/// # Errors
/// What is missing, or QEMU's reason.
pub fn start(
    policy: &mut Policy,
    facts: &Facts,
    source: Option<&Source>,
    trace: &Trace,
) -> Result<Option<Guest>, Fault> {
    if policy.tier != TierChoice::Vm {
        return Ok(None);
    }
    // Refusals first: they cost nothing.
    let plan =
        ringfence_sandbox::planner::plan(policy, facts, &ringfence_sandbox::facts::HostPaths)
            .map_err(Fault::of)?;
    let shape = plan.machine.as_ref().ok_or_else(|| Fault::usage("the plan has no machine"))?;
    let assets = Assets::find(&home(), shape.monitor).map_err(Fault::usage)?;
    let program = vm::show::program(policy).map_err(Fault::usage)?;
    let ask = |source: &Source| {
        source.can(shape)?;
        vm::read_ahead(&assets, shape, &home()).map_err(Fault::usage)?;
        source.ask(policy, &plan, shape)
    };
    let fork = source.map(ask).transpose()?;
    let mut machine = Machine::start(assets, shape, &home(), fork, trace).map_err(Fault::usage)?;
    machine.has_policy(policy.clone());
    machine.show(policy);
    Ok(Some(Guest { machine: Rc::new(RefCell::new(machine)), program }))
}

impl Guest {
    /// The sandbox's own command: the bridge.
    pub fn command(&self, plan: &Plan, argv: &[OsString]) -> Vec<OsString> {
        let shape = plan.machine.as_ref();
        let settings = Settings {
            socket: self.machine.borrow().socket(),
            network: plan.network == NetworkMode::Filtered,
            loopback: plan.capture.as_ref().map(|own| own.loopback.clone()).unwrap_or_default(),
            publish: plan.publish.iter().map(|publish| publish.port).collect(),
            processes: shape.and_then(|shape| shape.processes),
            files: shape.and_then(|shape| shape.files),
            disk: shape.and_then(|shape| shape.disk),
            memory: shape.map_or(vm::LEAST_MEMORY, |shape| shape.memory),
            apart: plan.apart().map(ToOwned::to_owned).collect(),
            private: plan.private().map(ToOwned::to_owned).collect(),
            argv: argv.iter().cloned().map(OsString::into_vec).collect(),
        };
        let mut words = vec![self.program.clone().into_os_string(), vm::BRIDGE.into()];
        words.extend(settings.words());
        words
    }
}

/// Why a run in a machine failed, with what QEMU said.
pub fn explain(guest: Option<&Guest>, error: LaunchError) -> LaunchError {
    match guest.and_then(|guest| guest.machine.borrow_mut().complaint()) {
        Some(said) => LaunchError::Setup(format!("{error}; {said}")),
        None => error,
    }
}

/// `ringfence vm setup|status|clean`
///
/// # Errors
/// What is missing, and what to type.
pub fn vm(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&PLAIN, arguments, true)?;
    if let Some(done) = help::asked("vm", &parsed) {
        return done;
    }
    let words: Vec<_> = parsed.rest.iter().map(|word| word.to_string_lossy()).collect();
    match words.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] {
        ["setup"] => {
            vm::setup::run(&home(), &mut |text| drop(line(format_args!("{text}"))))
                .map_err(Fault::usage)?;
            status()
        }
        ["status"] => status(),
        ["clean"] => {
            vm::discard_templates(&home()).map_err(Fault::usage)?;
            Ok(0)
        }
        ref words => {
            let word = words.first().copied().unwrap_or_default();
            let meant = suggest::meant(word, &["setup", "status", "clean"], "");
            Err(Fault::usage(format!("ringfence vm setup, status or clean{meant}")))
        }
    }
}

fn status() -> Result<u8, Fault> {
    let monitor = monitor().map_err(Fault::usage)?;
    let assets = Assets::find(&home(), monitor).map_err(Fault::usage)?;
    match monitor {
        Monitor::Qemu => line(format_args!("qemu          {}", assets.monitor.display()))?,
        Monitor::Krun => line(format_args!("libkrun       in this program"))?,
    };
    let kernel = &assets.kernel;
    line(format_args!("guest kernel  {} ({})", kernel.release, kernel.image.display()))?;
    let (accelerator, why) = vm::accel::find();
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    line(format_args!("executed by   {}{why}", accelerator.name()))
}
