//! The child of a launcher that compiled its plan just now: carries out the image, and becomes
//! the sandbox's warden.

use super::Order;
use super::compile::assistance;
use super::environment::Environment;
use crate::guard::Guarding;
use crate::live::Spawner;
use crate::plan::Plan;
use crate::state::{PID_MARK, SESSION_MARK};
use crate::trace::Trace;
use crate::warden::Warden;
use ringfence_net::Inspection;
use ringfence_net::inspect::Content;
use ringfence_start::image::Image;
use ringfence_sys as sys;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use sys::Errno;
use sys::image::{Inherited, Words};

/// What the child has of its launcher.
pub(super) struct Child<'a> {
    pub plan: &'a Plan,
    pub inspection: Option<&'a Inspection>,
    pub image: Image,
    pub words: Words,
    pub control: OwnedFd,
    pub inherited: Inherited,
    pub trace: &'a Trace,
    pub guarding: &'a Guarding,
    pub groups: &'a crate::cgroup::Groups,
    pub private: Option<PathBuf>,
}

impl Child<'_> {
    /// The child's whole life.
    pub fn live(self) -> ! {
        let control = self.control.as_fd();
        let (plan, groups) = (self.plan, self.groups);
        if let Some(inspection) = self.inspection {
            inspection.forget();
        }
        let mut assist = |number: u64, file: usize| {
            let result = match (number, &plan.capture) {
                (assistance::DATA.., _) => self.data(number - assistance::DATA, file),
                (assistance::GROUPS, _) => groups.join_v1(),
                (assistance::CAPTURE, Some(capture)) => {
                    ringfence_net::capture::inside(control, capture)
                }
                _ => Err("ask the launcher for something it does not know".to_owned()),
            };
            match result {
                Ok(()) => 0,
                Err(sentence) => {
                    // The sentence comes before the step's own report, and counts.
                    let _ = sys::fd::send(control, &[b"E", sentence.as_bytes()].concat());
                    Errno::ECANCELED.into_raw()
                }
            }
        };
        let (warden, wanted, carrier) = sys::image::carry_out(
            self.image,
            &self.words,
            &self.control,
            self.inherited,
            self.trace.for_child(),
            &mut assist,
        );
        Warden {
            command: warden.command,
            spawner: Spawner { words: self.words, carrier },
            control: self.control,
            tier: plan.tier,
            guarding: self.guarding,
            private: self.private,
        }
        .go_on(wanted)
    }
}

impl Child<'_> {
    /// Writes a public file of the session's own.
    fn data(&self, content: u64, file: usize) -> Result<(), String> {
        /// The most bytes of one.
        const MOST: usize = 64 << 20;
        let contents = [Content::Bundle, Content::Truststore];
        let content = contents.into_iter().find(|known| *known as u64 == content);
        let (Some(inspection), Some(content)) = (self.inspection, content) else {
            return Err("the plan inspects requests, and the launcher does not".to_owned());
        };
        inspection.wait()?;
        let failed = |errno| format!("cannot write the session's certificates: {errno}");
        let bytes = sys::fd::content(inspection.content(content), MOST).map_err(failed)?;
        sys::fd::write_to(file as i32, &bytes).map_err(failed)
    }
}

/// What is executed: the order's arguments, the caller's kept variables and the plan's.
pub(super) fn words(
    plan: &Plan,
    order: &Order,
    environment: &Environment,
    caller: &[(Vec<u8>, Vec<u8>)],
) -> Option<Words> {
    let arguments = order.argv.iter().map(|word| CString::new(word.as_bytes()));
    let kept = caller.iter().zip(&environment.kept).filter(|(_, kept)| **kept);
    let kept = kept.map(|((name, value), _)| CString::new([name, &b"="[..], value].concat()));
    let pid = format!("{:010}", std::process::id());
    let set = environment.set.iter().map(|entry| {
        let entry = replace(entry, SESSION_MARK, &order.session_name());
        CString::new(replace(&entry, PID_MARK, &pid))
    });
    Some(Words {
        arguments: arguments.collect::<Result<_, _>>().ok()?,
        environment: kept.chain(set).collect::<Result<_, _>>().ok()?,
        workdir: CString::new(plan.workdir.as_os_str().as_bytes()).ok()?,
    })
}

fn replace(text: &[u8], mark: &str, with: &str) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(mark.as_bytes()) {
            made.extend_from_slice(with.as_bytes());
            rest = after;
        } else {
            made.push(*first);
            rest = after;
        }
    }
    made
}
