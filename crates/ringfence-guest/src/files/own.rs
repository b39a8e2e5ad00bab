//! What of a guest's root directory is the guest's own, and how the root is answered for before there is a session.
//!
//! A guest mounts its own file systems over `/proc`, `/dev` and `/sys` before it is saved: then a clone has
//! them already. So these directories have the same nodes in every session, whatever the host has
//! in their places, and stay what they are: the mounts would go with them.

use super::abi::{Body, Fields, Opcode, Request, reply};
use super::{OWN, ROOT, Result, serve};
use rustix::io::Errno;

/// For how long they may be believed: seconds.
const ALWAYS: u64 = 1 << 30;

/// The node of a name in the root that is the guest's own.
pub(super) fn node(parent: u64, name: &[u8]) -> Option<u64> {
    let at = OWN.iter().position(|own| *own == name)?;
    (parent == ROOT).then_some(ROOT + 1 + at as u64)
}

/// Whether a node is one of these.
pub(super) fn is(node: u64) -> bool {
    (ROOT + 1..=ROOT + OWN.len() as u64).contains(&node)
}

/// `struct fuse_attr` of such a directory, and of a root without a session.
fn attributes(body: &mut Body, node: u64) {
    body.long(node).long(0).long(0).zeroes(36);
    // Mode, links, user, group, device, block size, flags.
    body.word(0o040_755).word(2).word(0).word(0).word(0).word(4096).word(0);
}

/// `struct fuse_entry_out`
pub(super) fn entry(body: &mut Body, node: u64) {
    body.long(node).long(0).long(ALWAYS).long(ALWAYS).word(0).word(0);
    attributes(body, node);
}

/// `struct fuse_attr_out`
pub(super) fn state(node: u64) -> Body {
    let mut body = Body::default();
    body.long(if is(node) { ALWAYS } else { 0 }).word(0).word(0);
    attributes(&mut body, node);
    body
}

/// The node of the one file that a session has which is only played: none that a session gives ever gets so far.
const PLAYED: u64 = 1 << 62;
/// Its name in the root.
pub const PROGRAM: &[u8] = b"rehearsal";

/// Answers a guest's kernel while a session is played: as [`rehearse`], and with one program in the root.
pub fn play(request: &[u8], program: &[u8]) -> Option<Vec<u8>> {
    let parsed = Request::parse(request)?;
    let Some(opcode) = Opcode::of(parsed.opcode) else { return rehearse(request) };
    let mut fields = parsed.body;
    let looked = opcode == Opcode::Lookup && parsed.node == ROOT && fields.name() == Some(PROGRAM);
    if !looked && parsed.node != PLAYED || !super::wants_answer(request) {
        return rehearse(request);
    }
    let mut body = Body::default();
    let result = match opcode {
        Opcode::Lookup => {
            body.long(PLAYED).long(0).long(0).long(0).word(0).word(0);
            regular(&mut body, program.len() as u64);
            Ok(())
        }
        Opcode::GetAttr => {
            body.long(0).word(0).word(0);
            regular(&mut body, program.len() as u64);
            Ok(())
        }
        // `struct fuse_open_out`
        Opcode::Open => {
            body.long(0).word(0).word(0);
            Ok(())
        }
        Opcode::Read => {
            fields.skip(8);
            let (at, count) = (fields.long(), fields.word());
            let at = usize::try_from(at.unwrap_or_default()).unwrap_or(usize::MAX);
            let rest = program.get(at..).unwrap_or_default();
            let count = count.unwrap_or_default() as usize;
            body.0.extend_from_slice(&rest[..rest.len().min(count)]);
            Ok(())
        }
        Opcode::Flush | Opcode::Release | Opcode::Access => Ok(()),
        Opcode::GetAttribute => Err(Errno::NODATA),
        _ => Err(Errno::PERM),
    };
    let result = result.as_ref().map(|()| &body.0[..]).map_err(|errno| errno.raw_os_error());
    Some(reply(parsed.unique, result))
}

/// `struct fuse_attr` of a program.
fn regular(body: &mut Body, size: u64) {
    body.long(PLAYED).long(size).long(size.div_ceil(512)).zeroes(36);
    body.word(0o100_755).word(1).word(0).word(0).word(0).word(4096).word(0);
}

/// Answers the guest's own kernel while the view is built and nobody else is there: nothing but the directories
/// that are mounted over. `None`: no answer is wanted.
pub fn rehearse(request: &[u8]) -> Option<Vec<u8>> {
    let request = Request::parse(request)?;
    let result = match Opcode::of(request.opcode) {
        Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) => return None,
        Some(opcode) => answer(opcode, request.node, request.body),
        None => Err(Errno::NOSYS),
    };
    Some(match result {
        Ok(body) => reply(request.unique, Ok(&body.0)),
        Err(errno) => reply(request.unique, Err(errno.raw_os_error())),
    })
}

fn answer(opcode: Opcode, at: u64, mut fields: Fields<'_>) -> Result<Body> {
    let mut body = Body::default();
    match opcode {
        Opcode::Init => return serve::init(&mut fields),
        Opcode::Lookup => {
            let found = fields.name().and_then(|name| node(at, name));
            entry(&mut body, found.ok_or(Errno::NOENT)?);
        }
        Opcode::GetAttr => return Ok(state(at)),
        // What is not known here must be asked again in a session: never that there is no such call.
        Opcode::Access => {}
        _ => return Err(Errno::NOENT),
    }
    Ok(body)
}
