//! A graph of decisions as a program: one instruction after the other, with jumps forward of 255 instructions at most.
//!
//! It is written from its end, where each step's successors are known. One that is out of reach is written once more
//! if it is one instruction, and else reached by an unconditional jump, whose distance has 32 bits.

use super::decisions::{Compare, Decisions, Place, Step};
use ringfence_sys::seccomp::Instruction;

pub(super) const LOAD_WORD: u16 = 0x20;
pub(super) const JUMP: u16 = 0x05;
pub(super) const JUMP_EQUAL: u16 = 0x15;
pub(super) const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
pub(super) const JUMP_ANY_BIT: u16 = 0x45;
pub(super) const AND: u16 = 0x54;
pub(super) const RETURN: u16 = 0x06;

/// The program that begins at a place.
pub(super) fn lay_out(decisions: &Decisions, first: Place) -> Vec<Instruction> {
    let mut layout =
        Layout { decisions, reversed: Vec::new(), heights: vec![None; decisions.len()] };
    layout.put(first);
    layout.on_top(first);
    layout.reversed.reverse();
    layout.reversed
}

struct Layout<'a> {
    decisions: &'a Decisions,
    /// Instructions, the last one first.
    reversed: Vec<Instruction>,
    /// How many instructions there were when a place's latest was written, itself included.
    heights: Vec<Option<usize>>,
}

impl Layout<'_> {
    /// Writes a place and all that it leads to, if it is not there yet.
    fn put(&mut self, place: Place) {
        if self.heights[place].is_some() {
            return;
        }
        match self.decisions.at(place) {
            Step::Give(_) => {}
            Step::Load(_, next) | Step::And(_, next) => {
                self.put(next);
                self.on_top(next);
            }
            Step::If(_, yes, no) => {
                self.put(yes);
                self.put(no);
            }
        }
        self.write(place);
    }

    /// Writes a place's own instruction; what it leads to is there already, directly before for one that falls through.
    fn write(&mut self, place: Place) {
        let one = match self.decisions.at(place) {
            Step::Give(action) => plain(RETURN, action),
            Step::Load(offset, _) => plain(LOAD_WORD, offset),
            Step::And(mask, _) => plain(AND, mask),
            Step::If(compare, yes, no) => {
                let (code, operand) = match compare {
                    Compare::Equal(number) => (JUMP_EQUAL, number),
                    Compare::AtLeast(number) => (JUMP_GREATER_OR_EQUAL, number),
                    Compare::AnyBit(bits) => (JUMP_ANY_BIT, bits),
                };
                // What brings one nearer moves the other away, by two instructions at most.
                self.bring_near(yes, 2);
                self.bring_near(no, 0);
                let distance = |place| {
                    u8::try_from(self.distance(place)).expect("brought within the reach of a jump")
                };
                let (jump_true, jump_false) = (distance(yes), distance(no));
                Instruction { code, jump_true, jump_false, operand }
            }
        };
        self.push(place, one);
    }

    fn push(&mut self, place: Place, one: Instruction) {
        self.reversed.push(one);
        self.heights[place] = Some(self.reversed.len());
    }

    /// How many instructions one that is written now would skip to get there.
    fn distance(&self, place: Place) -> usize {
        self.reversed.len() - self.heights[place].expect("successors are written first")
    }

    /// Has a place within a conditional jump's reach, with so much to spare.
    fn bring_near(&mut self, place: Place, spare: usize) {
        if self.distance(place) + spare <= usize::from(u8::MAX) {
            return;
        }
        match self.decisions.at(place) {
            Step::Give(_) => self.write(place),
            _ => self.jump_to(place),
        }
    }

    /// Has the next instruction fall through to a place.
    fn on_top(&mut self, place: Place) {
        if self.distance(place) == 0 {
            return;
        }
        match self.decisions.at(place) {
            Step::Give(_) => self.write(place),
            Step::If(_, yes, no) if self.distance(yes).max(self.distance(no)) < 250 => {
                self.write(place);
            }
            _ => self.jump_to(place),
        }
    }

    fn jump_to(&mut self, place: Place) {
        let distance = self.distance(place);
        let operand = u32::try_from(distance).expect("a program has fewer than 2^32 instructions");
        self.push(place, plain(JUMP, operand));
    }
}

fn plain(code: u16, operand: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, operand }
}
