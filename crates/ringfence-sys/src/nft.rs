//! nftables (nfnetlink): one table of NAT and filter rules for packets that the caller's network
//! namespace sends, without `nft`.
//!
//! The numbers are those of `linux/netfilter/nf_tables.h`; `nft --debug=netlink` prints rules in
//! the same terms.

use crate::Result;
use crate::message::{ACK, APPEND, CREATE, Messages};

/// `NFNL_SUBSYS_NFTABLES` in the upper byte of a message's type.
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;

/// `NFPROTO_INET`: IPv4 and IPv6 in one table (nat chains in it: Linux 5.2).
const INET: u8 = 1;
/// `NF_INET_LOCAL_OUT`.
const LOCAL_OUT: u32 = 3;
/// `NF_IP_PRI_NAT_DST`.
const PRIORITY: i32 = -100;
/// The one data register that the rules use, and the register of verdicts.
const REGISTER: u32 = 1;
const VERDICT: u32 = 0;

const TABLE: &[u8] = b"ringfence\0";
const CHAIN: &[u8] = b"output\0";

/// What a packet must be for a rule to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Carries this transport protocol (`IPPROTO_*`).
    Transport(u8),
    /// TCP's or UDP's destination port lies in this range; goes after [`Match::Transport`].
    Ports(u16, u16),
    /// Is IPv4, and the destination's first byte is this one.
    FirstByte(u8),
    /// Is IPv4, and goes to this address.
    To4([u8; 4]),
    /// Is IPv6, and goes to this address.
    To6([u8; 16]),
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To the loopback, at this port: 127.0.0.1 or ::1.
    Redirect(u16),
    /// Goes on as it is.
    Accept,
    /// Is not sent: the sender sees `EPERM`.
    Drop,
}

/// One rule: all of the matches, then the act. The first rule that matches decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(pub Vec<Match>, pub Act);

/// Installs the rules in a new table `ringfence`, all or none (a nat chain at the output hook, so
/// they are read for the first packet of each connection).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the network namespace; `EOPNOTSUPP`, `ENOENT`,
/// `EPROTONOSUPPORT` or `EAFNOSUPPORT` where the kernel has no nftables or not all of the parts.
pub fn install(rules: &[Rule]) -> Result<()> {
    messages(rules).send(libc::NETLINK_NETFILTER)
}

/// The messages that [`install`] sends, as one datagram: one confirmation comes for all of them,
/// or an error first.
pub fn bytes(rules: &[Rule]) -> Vec<u8> {
    messages(rules).into_bytes()
}

fn messages(rules: &[Rule]) -> Messages {
    let mut messages = Messages::new();
    // struct nfgenmsg: family, version, resource (big-endian).
    let batch = [0, 0, 0, SUBSYSTEM as u8];
    let inet = [INET, 0, 0, 0];
    messages.add(BATCH_BEGIN, 0, &batch, |_| {});
    messages.add(NEW_TABLE, CREATE, &inet, |table| table.attribute(1, TABLE));
    let confirm_chain = if rules.is_empty() { ACK } else { 0 };
    messages.add(NEW_CHAIN, CREATE | confirm_chain, &inet, |chain| {
        chain.attribute(1, TABLE);
        chain.attribute(3, CHAIN);
        chain.nest(4, |hook| {
            hook.attribute(1, &LOCAL_OUT.to_be_bytes());
            hook.attribute(2, &PRIORITY.to_be_bytes());
        });
        chain.attribute(7, b"nat\0");
    });
    for (index, Rule(matches, act)) in rules.iter().enumerate() {
        // Errors are told for every message; one confirmation at the end is enough.
        let confirm = if index + 1 == rules.len() { ACK } else { 0 };
        messages.add(NEW_RULE, CREATE | APPEND | confirm, &inet, |rule| {
            rule.attribute(1, TABLE);
            rule.attribute(2, CHAIN);
            rule.nest(4, |list| {
                for &part in matches {
                    expect(list, part);
                }
                perform(list, *act);
            });
        });
    }
    messages.add(BATCH_END, 0, &batch, |_| {});
    messages
}

fn expect(list: &mut Messages, part: Match) {
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    const KEY_FAMILY: u32 = 15;
    const KEY_TRANSPORT: u32 = 16;
    const EQUAL: u32 = 0;
    const AT_MOST: u32 = 3;
    const AT_LEAST: u32 = 5;
    let family = |list: &mut Messages, family: u8| {
        meta(list, KEY_FAMILY);
        compare(list, EQUAL, &[family]);
    };
    match part {
        Match::Transport(protocol) => {
            meta(list, KEY_TRANSPORT);
            compare(list, EQUAL, &[protocol]);
        }
        Match::Ports(first, last) => {
            payload(list, TRANSPORT, 2, 2);
            if first == last {
                compare(list, EQUAL, &first.to_be_bytes());
            } else {
                compare(list, AT_LEAST, &first.to_be_bytes());
                compare(list, AT_MOST, &last.to_be_bytes());
            }
        }
        Match::FirstByte(byte) => {
            family(list, libc::AF_INET as u8);
            payload(list, NETWORK, 16, 1);
            compare(list, EQUAL, &[byte]);
        }
        Match::To4(address) => {
            family(list, libc::AF_INET as u8);
            payload(list, NETWORK, 16, 4);
            compare(list, EQUAL, &address);
        }
        Match::To6(address) => {
            family(list, libc::AF_INET6 as u8);
            payload(list, NETWORK, 24, 16);
            compare(list, EQUAL, &address);
        }
    }
}

fn perform(list: &mut Messages, act: Act) {
    const PORT_GIVEN: u32 = 2;
    let verdict = |list: &mut Messages, code: u32| {
        expression(list, b"immediate\0", |data| {
            data.attribute(1, &VERDICT.to_be_bytes());
            data.nest(2, |value| value.nest(2, |v| v.attribute(1, &code.to_be_bytes())));
        });
    };
    match act {
        Act::Drop => verdict(list, 0),
        Act::Accept => verdict(list, 1),
        Act::Redirect(port) => {
            expression(list, b"immediate\0", |data| {
                data.attribute(1, &REGISTER.to_be_bytes());
                data.nest(2, |value| value.attribute(1, &port.to_be_bytes()));
            });
            expression(list, b"redir\0", |data| {
                data.attribute(1, &REGISTER.to_be_bytes());
                data.attribute(2, &REGISTER.to_be_bytes());
                data.attribute(3, &PORT_GIVEN.to_be_bytes());
            });
        }
    }
}

fn expression(list: &mut Messages, name: &[u8], data: impl FnOnce(&mut Messages)) {
    list.nest(1, |expression| {
        expression.attribute(1, name);
        expression.nest(2, data);
    });
}

fn meta(list: &mut Messages, key: u32) {
    expression(list, b"meta\0", |data| {
        data.attribute(1, &REGISTER.to_be_bytes());
        data.attribute(2, &key.to_be_bytes());
    });
}

fn payload(list: &mut Messages, base: u32, offset: u32, length: u32) {
    expression(list, b"payload\0", |data| {
        for (kind, value) in [(1, REGISTER), (2, base), (3, offset), (4, length)] {
            data.attribute(kind, &value.to_be_bytes());
        }
    });
}

fn compare(list: &mut Messages, operation: u32, value: &[u8]) {
    expression(list, b"cmp\0", |data| {
        data.attribute(1, &REGISTER.to_be_bytes());
        data.attribute(2, &operation.to_be_bytes());
        data.nest(3, |nested| nested.attribute(1, value));
    });
}
