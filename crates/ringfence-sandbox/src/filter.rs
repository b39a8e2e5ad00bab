//! Compiles the plan's call rules to a seccomp filter.
//!
//! The filter is a binary search over call numbers, so that the kernel's own pass over all
//! numbers at installation (its allow-bitmap, Linux 5.11) and any call that is not in the
//! bitmap are short; calls without rules are decided by number alone and land in the bitmap,
//! which means that they never run the filter at all.

use crate::plan::{AllowedCalls, CallRule, Test, Verdict};
use ringfence_sys::Sysno;
use ringfence_sys::seccomp::{AUDIT_ARCH, Instruction, Program};
use std::collections::{BTreeMap, BTreeSet};

const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Offset of the low half of an argument (all supported machines are little-endian).
fn argument(index: u8) -> u32 {
    16 + 8 * u32::from(index)
}

const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIF: u32 = 0x7FC0_0000;

/// The first number that nobody here knows: calls of later kernels, of which no rule could speak, and
/// on x86-64 those of the x32 ABI, which carry 0x40000000 and would reach other entry points.
fn first_unknown() -> u32 {
    Sysno::last().id() as u32 + 1
}

fn action(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Supervise | Verdict::Observe | Verdict::Ask => return USER_NOTIF,
        Verdict::Kill => return KILL_PROCESS,
        _ => {}
    }
    ERRNO
        | match verdict {
            Verdict::Refuse => 1,              // EPERM
            Verdict::NotImplemented => 38,     // ENOSYS
            Verdict::FamilyNotSupported => 97, // EAFNOSUPPORT
            Verdict::AccessDenied => 13,       // EACCES
            Verdict::Supervise | Verdict::Observe | Verdict::Ask | Verdict::Kill => 0,
        }
}

/// Compiles the rules; calls without a rule are allowed, or only those on a list.
///
/// A wrong architecture kills the process; a number past all known calls is refused with `ENOSYS`, as by
/// a kernel that does not have it.
pub fn compile(rules: &[CallRule], allowed: Option<&AllowedCalls>) -> Program {
    let mut by_number: BTreeMap<u32, Vec<&CallRule>> = BTreeMap::new();
    for rule in rules {
        if let Ok(number) = rule.call.parse::<Sysno>() {
            by_number.entry(number.id() as u32).or_default().push(rule);
        }
    }
    let others = allowed.map_or(ALLOW, |allowed| action(allowed.otherwise));
    let mut listed: BTreeSet<u32> = BTreeSet::new();
    for name in allowed.iter().flat_map(|allowed| &allowed.calls) {
        if let Ok(number) = name.parse::<Sysno>() {
            by_number.entry(number.id() as u32).or_default();
            listed.insert(number.id() as u32);
        }
    }
    let mut lots = vec![(0, Lot::Always(others))];
    for (number, rules) in by_number {
        let rest = if listed.contains(&number) { ALLOW } else { others };
        let lot = match rules[..] {
            [] => Lot::Always(rest),
            [rule] if rule.tests.is_empty() => Lot::Always(ruled(rule, rest)),
            _ => Lot::Tested(decide(&rules, rest)),
        };
        lots.retain(|(first, _)| *first < number);
        lots.extend([(number, lot), (number + 1, Lot::Always(others))]);
    }
    lots.dedup_by(|(_, lot), (_, before)| match (lot, before) {
        (Lot::Always(action), Lot::Always(before)) => action == before,
        _ => false,
    });
    let mut program = vec![
        load(ARCHITECTURE),
        jump(JUMP_EQUAL, AUDIT_ARCH, 1, 0),
        give(KILL_PROCESS),
        load(NUMBER),
    ];
    program.push(jump(JUMP_GREATER_OR_EQUAL, first_unknown(), 0, 1));
    program.push(give(action(Verdict::NotImplemented)));
    program.extend(search(&lots));
    Program(program)
}

/// What a rule does with a call whose lot is `rest` without it: what is not allowed at all is not
/// supervised either.
fn ruled(rule: &CallRule, rest: u32) -> u32 {
    if told(rule) && rest != ALLOW { rest } else { action(rule.verdict) }
}

/// Whether the launcher is told of a call.
pub fn told(rule: &CallRule) -> bool {
    matches!(rule.verdict, Verdict::Supervise | Verdict::Observe)
}

/// Where in a program, in bytes, a number stands that an argument is compared with.
pub fn comparisons(program: &Program, number: u32) -> impl Iterator<Item = usize> {
    const OPERAND: usize = 4;
    let is = move |one: &Instruction| one.code == JUMP_EQUAL && one.operand == number;
    let places = program.0.iter().enumerate().filter(move |(_, one)| is(one));
    places.map(|(at, _)| at * size_of::<Instruction>() + OPERAND)
}

/// What becomes of the calls from a number on, up to the next such number.
enum Lot {
    /// Always the same action.
    Always(u32),
    /// Code that looks at the arguments.
    Tested(Vec<Instruction>),
}

/// Ranges in one leaf of the search. The kernel translates and compiles each instruction at
/// every installation, so the program is kept short: the tests of a leaf share its returns.
const LEAF: usize = 32;

/// Binary search down to leaves.
fn search(lots: &[(u32, Lot)]) -> Vec<Instruction> {
    if lots.len() <= LEAF
        && let Some(leaf) = leaf(lots)
    {
        return leaf;
    }
    let (low, high) = lots.split_at(lots.len() / 2);
    let low = search(low);
    // At or above the first of the high half: jump over the low half.
    let mut out = skip_if(JUMP_GREATER_OR_EQUAL, high[0].0, low.len());
    out.extend(low);
    out.extend(search(high));
    out
}

/// The reach of a conditional jump.
const REACH: usize = 255;

/// Where a test leads.
#[derive(Clone, Copy)]
enum Next {
    /// To another one, by its place.
    Test(usize),
    /// To what becomes of a range, by its place.
    Lot(usize),
}

/// A binary search, then the returns and codes that it leads to; nothing if a jump would reach too far.
fn leaf(lots: &[(u32, Lot)]) -> Option<Vec<Instruction>> {
    let mut returns: BTreeMap<u32, usize> = BTreeMap::new();
    let mut tail = Vec::new();
    for (_, lot) in lots {
        if let Lot::Always(action) = lot {
            returns.entry(*action).or_insert_with(|| {
                tail.push(give(*action));
                tail.len() - 1
            });
        }
    }
    let places: Vec<usize> = lots
        .iter()
        .map(|(_, lot)| match lot {
            Lot::Always(action) => returns[action],
            Lot::Tested(code) => {
                tail.extend_from_slice(code);
                tail.len() - code.len()
            }
        })
        .collect();
    let mut tests = Vec::new();
    halve(lots, 0, &mut tests);
    let mut out = Vec::with_capacity(tests.len() + tail.len());
    for (at, &(number, low, high)) in tests.iter().enumerate() {
        let distance = |next| match next {
            Next::Test(place) => place - at - 1,
            Next::Lot(place) => tests.len() - at - 1 + places[place],
        };
        let (low, high) = (u8::try_from(distance(low)).ok()?, u8::try_from(distance(high)).ok()?);
        out.push(jump(JUMP_GREATER_OR_EQUAL, number, high, low));
    }
    out.extend(tail);
    Some(out)
}

/// Adds the tests that tell these ranges apart, of which the first has this place; where they begin.
fn halve(lots: &[(u32, Lot)], first: usize, tests: &mut Vec<(u32, Next, Next)>) -> Next {
    if lots.len() == 1 {
        return Next::Lot(first);
    }
    let half = lots.len() / 2;
    let (low, high) = lots.split_at(half);
    let place = tests.len();
    tests.push((high[0].0, Next::Lot(first), Next::Lot(first)));
    let below = halve(low, first, tests);
    let above = halve(high, first + half, tests);
    tests[place] = (high[0].0, below, above);
    Next::Test(place)
}

/// The code for one call: each rule in turn, then `rest`. Every path ends in a return.
fn decide(rules: &[&CallRule], rest: u32) -> Vec<Instruction> {
    let mut out = Vec::new();
    let mut left = rules;
    while let [rule, after @ ..] = left {
        let (same, others) = left.split_at(alike(left, rest));
        if same.len() > 1 {
            out.extend(any_of(same, rest));
            left = others;
            continue;
        }
        left = after;
        let mut code = vec![give(ruled(rule, rest))];
        // From the last test to the first: each skips the rest of this rule when it fails.
        for (position, (index, test)) in rule.tests.iter().enumerate().rev() {
            let skipped = code.len();
            // The argument may still be loaded by the test before.
            let loaded = position > 0
                && rule.tests[position - 1].0 == *index
                && !matches!(rule.tests[position - 1].1, Test::Masked(..) | Test::MaskDiffers(..));
            let mut check = if loaded { Vec::new() } else { vec![load(argument(*index))] };
            if let Test::Masked(mask, _) | Test::MaskDiffers(mask, _) = *test {
                check.push(and(mask));
            }
            check.extend(match *test {
                Test::Equals(value) | Test::Masked(_, value) => {
                    skip_unless(JUMP_EQUAL, value, skipped)
                }
                Test::Differs(value) | Test::MaskDiffers(_, value) => {
                    skip_if(JUMP_EQUAL, value, skipped)
                }
                Test::AnyBit(mask) => skip_unless(JUMP_ANY_BIT, mask, skipped),
            });
            check.extend(code);
            code = check;
        }
        out.extend(code);
        if rule.tests.is_empty() {
            return out;
        }
    }
    out.push(give(rest));
    out
}

/// The mask under which a rule's only argument must be a number, and the number.
fn wanted(rule: &CallRule) -> Option<(u8, Option<u32>, u32)> {
    match rule.tests[..] {
        [(index, Test::Equals(value))] => Some((index, None, value)),
        [(index, Test::Masked(mask, value))] => Some((index, Some(mask), value)),
        _ => None,
    }
}

/// How many rules at the beginning do the same for different numbers of the same argument.
fn alike(rules: &[&CallRule], rest: u32) -> usize {
    let kind =
        |rule: &CallRule| wanted(rule).map(|(index, mask, _)| (index, mask, ruled(rule, rest)));
    let Some(first) = rules.first().and_then(|rule| kind(rule)) else { return 0 };
    rules.iter().take(REACH).take_while(|rule| kind(rule) == Some(first)).count()
}

/// The code for rules that are [`alike`]: the argument is loaded once, and all lead to one return.
fn any_of(rules: &[&CallRule], rest: u32) -> Vec<Instruction> {
    let mut out = Vec::new();
    for (place, (index, mask, value)) in rules.iter().filter_map(|rule| wanted(rule)).enumerate() {
        if place == 0 {
            out.push(load(argument(index)));
            out.extend(mask.map(and));
        }
        let last = place + 1 == rules.len();
        let distance = u8::try_from(rules.len() - place - 1).expect("within reach");
        out.push(jump(JUMP_EQUAL, value, distance, u8::from(last)));
    }
    out.push(give(ruled(rules[0], rest)));
    out
}

fn and(mask: u32) -> Instruction {
    Instruction { code: AND, jump_true: 0, jump_false: 0, operand: mask }
}

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD_WORD, jump_true: 0, jump_false: 0, operand: offset }
}

fn give(action: u32) -> Instruction {
    Instruction { code: RETURN, jump_true: 0, jump_false: 0, operand: action }
}

fn jump(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

/// An unconditional jump, whose 32-bit distance cannot overflow as a test's 8 bits could.
fn over(count: usize) -> Instruction {
    let operand = u32::try_from(count).expect("a program has fewer than 2^32 instructions");
    Instruction { code: JUMP, jump_true: 0, jump_false: 0, operand }
}

/// Skips `count` instructions unless the test holds.
fn skip_unless(code: u16, operand: u32, count: usize) -> Vec<Instruction> {
    match u8::try_from(count) {
        Ok(near) => vec![jump(code, operand, 0, near)],
        Err(_) => vec![jump(code, operand, 1, 0), over(count)],
    }
}

/// Skips `count` instructions if the test holds.
fn skip_if(code: u16, operand: u32, count: usize) -> Vec<Instruction> {
    match u8::try_from(count) {
        Ok(near) => vec![jump(code, operand, near, 0)],
        Err(_) => vec![jump(code, operand, 0, 1), over(count)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel does with the program, for one call.
    fn run(program: &Program, arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let instruction = program.0[at];
            let jump = |taken| {
                usize::from(if taken { instruction.jump_true } else { instruction.jump_false })
            };
            at += 1;
            match instruction.code {
                LOAD_WORD => {
                    accumulator = match instruction.operand {
                        NUMBER => number,
                        ARCHITECTURE => arch,
                        offset => arguments[(offset as usize - 16) / 8] as u32,
                    }
                }
                AND => accumulator &= instruction.operand,
                JUMP => at += instruction.operand as usize,
                JUMP_EQUAL => at += jump(accumulator == instruction.operand),
                JUMP_GREATER_OR_EQUAL => at += jump(accumulator >= instruction.operand),
                JUMP_ANY_BIT => at += jump(accumulator & instruction.operand != 0),
                RETURN => return instruction.operand,
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    fn rule(call: &'static str, tests: &[(u8, Test)]) -> CallRule {
        CallRule { call, verdict: Verdict::Refuse, tests: tests.to_vec(), reason: "test" }
    }

    fn number(call: &str) -> u32 {
        call.parse::<Sysno>().expect("a call of this machine").id() as u32
    }

    #[test]
    fn another_architecture_is_killed_and_calls_that_nobody_knows_are_not_there() {
        let known = number("file_setattr");
        for program in [compile(&[], None), compile(&[rule("ioctl", &[])], None)] {
            assert_eq!(run(&program, AUDIT_ARCH, 1, [0; 6]), ALLOW);
            assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), KILL_PROCESS);
            assert_eq!(run(&program, AUDIT_ARCH, known, [0; 6]), ALLOW);
            for unknown in [known + 1, 600, 0x4000_0001, u32::MAX] {
                assert_eq!(run(&program, AUDIT_ARCH, unknown, [0; 6]), ERRNO | 38, "{unknown}");
            }
        }
    }

    #[test]
    fn the_numbers_of_the_sessions_own_call_are_where_they_are_said_to_be() {
        let mut plan = [(3, Test::Differs(0x1111)), (4, Test::Differs(0x2222))]
            .map(|test| CallRule { verdict: Verdict::Observe, ..rule("execve", &[test]) })
            .to_vec();
        plan.extend((0..40).map(|_| rule("ioctl", &[(1, Test::Equals(0x3333))])));
        let mut program = compile(&plan, None);
        for (number, known) in [(0x1111, 7), (0x2222, 8)] {
            let places: Vec<usize> = comparisons(&program, number).collect();
            assert_eq!(places.len(), 1);
            program.0[places[0] / 8].operand = known;
        }
        let with = |a, b| run(&program, AUDIT_ARCH, number("execve"), [0, 0, 0, a, b, 0]);
        assert_eq!(with(7, 8), ALLOW);
        for (a, b) in [(7, 0), (0, 8), (8, 7), (0x1111, 0x2222), (0, 0)] {
            assert_eq!(with(a, b), USER_NOTIF, "{a} {b}");
        }
    }

    #[test]
    fn the_upper_half_of_an_argument_changes_nothing() {
        let program = compile(&[rule("ioctl", &[(1, Test::Equals(0x5412))])], None);
        let with = |request| run(&program, AUDIT_ARCH, number("ioctl"), [0, request, 0, 0, 0, 0]);
        assert_eq!(with(0x5412), ERRNO | 1);
        assert_eq!(with(0xFFFF_FFFF_0000_5412), ERRNO | 1);
        assert_eq!(with(0x5413), ALLOW);
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        let both = [(0, Test::Equals(16)), (2, Test::Differs(0))];
        let program = compile(&[rule("socket", &both)], None);
        let with = |a, c| run(&program, AUDIT_ARCH, number("socket"), [a, 3, c, 0, 0, 0]);
        assert_eq!(with(16, 9), ERRNO | 1);
        assert_eq!(with(16, 0), ALLOW);
        assert_eq!(with(2, 9), ALLOW);
    }

    #[test]
    fn what_is_not_listed_is_not_supervised_either() {
        let supervised = CallRule { verdict: Verdict::Supervise, ..rule("connect", &[]) };
        let list = |calls: &[&str]| AllowedCalls {
            calls: calls.iter().map(|call| (*call).to_owned()).collect(),
            otherwise: Verdict::Refuse,
        };
        let with = |list: &AllowedCalls| {
            let program = compile(std::slice::from_ref(&supervised), Some(list));
            run(&program, AUDIT_ARCH, number("connect"), [0; 6])
        };
        assert_eq!(with(&list(&["connect", "no_such_call"])), USER_NOTIF);
        assert_eq!(with(&list(&["read"])), ERRNO | 1);
    }

    proptest! {
        /// The compiled search agrees with reading the rules one by one, for every number.
        #[test]
        fn compiled_and_read_agree(picked in proptest::collection::vec((0u32..460, 0u8..6, any::<u32>()), 0..120),
                                   listed in proptest::option::of(proptest::collection::btree_set(0u32..460, 0..200)),
                                   argument in any::<u32>()) {
            let rules: Vec<CallRule> = picked.iter().filter_map(|&(number, test, value)| {
                let call = Sysno::new(number as usize)?.name();
                let test = match test {
                    0 => vec![],
                    1 => vec![(0, Test::Equals(value))],
                    2 => vec![(0, Test::Differs(value))],
                    3 => vec![(0, Test::AnyBit(value))],
                    4 => vec![(0, Test::Masked(0xFF, value & 0xFF))],
                    _ => vec![(0, Test::MaskDiffers(0xFF, value & 0xFF)), (0, Test::Differs(value))],
                };
                Some(rule(call, &test))
            }).collect();
            let names = |numbers: &BTreeSet<u32>| {
                let calls = numbers.iter().filter_map(|&number| Sysno::new(number as usize));
                calls.map(|call| call.name().to_owned()).collect()
            };
            let allowed = listed.as_ref().map(|listed| AllowedCalls { calls: names(listed), otherwise: Verdict::Kill });
            let program = compile(&rules, allowed.as_ref());
            for number in 0..first_unknown() {
                let holds = |rule: &&CallRule| rule.call.parse::<Sysno>().is_ok_and(|call| call.id() as u32 == number)
                    && rule.tests.iter().all(|&(_, test)| match test {
                        Test::Equals(value) => argument == value,
                        Test::Differs(value) => argument != value,
                        Test::AnyBit(mask) => argument & mask != 0,
                        Test::Masked(mask, value) => argument & mask == value,
                        Test::MaskDiffers(mask, value) => argument & mask != value,
                    });
                let known = Sysno::new(number as usize).is_some();
                let on_list = listed.as_ref().is_none_or(|listed| known && listed.contains(&number));
                let rest = if on_list { ALLOW } else { KILL_PROCESS };
                let expected = if rules.iter().any(|rule| holds(&rule)) { ERRNO | 1 } else { rest };
                prop_assert_eq!(run(&program, AUDIT_ARCH, number, [u64::from(argument), 0, 0, 0, 0, 0]), expected);
            }
        }
    }
}
