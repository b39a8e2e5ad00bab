//! Puts an image together: the bytes of its header, its lists and its data, in the layout of
//! [`ringfence_start::image`].

use super::cache;
use super::script::Script;
use ringfence_start::image::{self, Header, Op, Span, Stamp};

/// The image of a script.
pub(super) fn assemble(
    mut header: Header,
    script: &Script,
    stamps: &cache::Stamps,
    extra: &[u8],
) -> Vec<u8> {
    let ops = size_of_val(&*script.build.ops) + size_of_val(&*script.confine.ops);
    let stamped = size_of_val(&*stamps.first) + size_of_val(&*stamps.later);
    let parts = [size_of::<Header>(), ops, stamped, script.data.len(), extra.len()];
    let mut body: Vec<u8> = Vec::with_capacity(parts.iter().sum::<usize>() + 8 * parts.len());
    body.resize(size_of::<Header>(), 0);
    let mut place = |bytes: &[u8], count: usize| {
        while !body.len().is_multiple_of(8) {
            body.push(0);
        }
        let at = body.len() as u32;
        body.extend_from_slice(bytes);
        Span { at, length: count as u32 }
    };
    let ops = |ops: &[Op]| {
        let mut bytes = Vec::with_capacity(size_of_val(ops));
        ops.iter().for_each(|op| write_op(&mut bytes, op));
        bytes
    };
    header.build = place(&ops(&script.build.ops), script.build.ops.len());
    header.confine = place(&ops(&script.confine.ops), script.confine.ops.len());
    (header.aside, header.early) = (script.aside as u32, script.early as u32);
    header.held = script.held as u32;
    let mut list = |stamps: &[Stamp]| {
        let mut bytes = Vec::with_capacity(size_of_val(stamps));
        stamps.iter().for_each(|stamp| write_stamp(&mut bytes, stamp));
        place(&bytes, stamps.len())
    };
    header.stamps = list(&stamps.first);
    header.later = list(&stamps.later);
    header.data = place(&script.data, script.data.len());
    header.extra = place(extra, extra.len());
    while !body.len().is_multiple_of(8) {
        body.push(0);
    }
    header.length = body.len() as u32;
    body[..size_of::<Header>()].copy_from_slice(&header_bytes(&header));
    header.sum = image::sum(&body[16..]);
    body[..size_of::<Header>()].copy_from_slice(&header_bytes(&header));
    body
}

fn header_bytes(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<Header>());
    for word in [header.magic, header.sum, header.namespaces] {
        bytes.extend(word.to_ne_bytes());
    }
    for word in
        [header.length, header.flags, header.aside, header.early, header.held, header.unused]
    {
        bytes.extend(word.to_ne_bytes());
    }
    let spans = [
        header.build,
        header.confine,
        header.stamps,
        header.later,
        header.data,
        header.key,
        header.kept,
        header.set,
        header.patches,
        header.notes,
        header.tops,
        header.workdir,
        header.announce,
        header.runs,
        header.trees,
        header.sessions,
        header.private,
        header.made,
        header.extra,
    ];
    for span in spans {
        bytes.extend(span.at.to_ne_bytes());
        bytes.extend(span.length.to_ne_bytes());
    }
    bytes
}

fn write_op(bytes: &mut Vec<u8>, op: &Op) {
    bytes.extend(op.call.to_ne_bytes());
    bytes.extend(op.kinds.to_ne_bytes());
    for argument in op.arguments {
        bytes.extend(argument.to_ne_bytes());
    }
    bytes.extend([op.result, op.then, op.tolerated[0], op.tolerated[1]]);
    bytes.extend(op.otherwise.to_ne_bytes());
}

fn write_stamp(bytes: &mut Vec<u8>, stamp: &Stamp) {
    for word in [stamp.kind, stamp.name, stamp.text, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    for word in stamp.identity {
        bytes.extend(word.to_ne_bytes());
    }
}
