//! Bytes compared, copied and measured in plain loops: libc's own are not there yet.

/// The length of a string that ends with a zero byte.
///
/// # Safety
/// `text` must point to such a string.
pub unsafe fn length(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller's string goes on until the zero byte.
    while unsafe { *text.add(length) } != 0 {
        length += 1;
    }
    length
}

/// A string that ends with a zero byte, without it.
///
/// # Safety
/// `text` must point to such a string, which lives for `'a`.
pub unsafe fn string<'a>(text: *const u8) -> &'a [u8] {
    // SAFETY: by the caller's promise.
    unsafe { core::slice::from_raw_parts(text, length(text)) }
}

/// Whether both are the same.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && starts_with(a, b)
}

/// Whether `whole` begins with `part`.
pub fn starts_with(whole: &[u8], part: &[u8]) -> bool {
    if whole.len() < part.len() {
        return false;
    }
    let mut at = 0;
    while at < part.len() {
        if whole.get(at) != part.get(at) {
            return false;
        }
        at += 1;
    }
    true
}

/// The place of the first such byte.
pub fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        if bytes.get(at) == Some(&wanted) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The place of the last such byte.
pub fn last_position(bytes: &[u8], wanted: u8) -> Option<usize> {
    let mut at = bytes.len();
    while at > 0 {
        at -= 1;
        if bytes.get(at) == Some(&wanted) {
            return Some(at);
        }
    }
    None
}

/// Text built in a buffer of fixed size; what does not fit makes it invalid.
pub struct Text<'a> {
    buffer: &'a mut [u8],
    length: usize,
    whole: bool,
}

impl<'a> Text<'a> {
    /// An empty text.
    pub fn new(buffer: &'a mut [u8]) -> Text<'a> {
        Text { buffer, length: 0, whole: true }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let (Some(place), Some(byte)) = (self.buffer.get_mut(self.length), bytes.get(at))
            else {
                self.whole = false;
                return;
            };
            *place = *byte;
            self.length += 1;
            at += 1;
        }
    }

    /// Adds what is written to the room that is left, of which at most so many bytes are offered: as many as it says.
    /// What fills all that was offered may have been cut off.
    pub(crate) fn add(
        &mut self,
        most: usize,
        write: impl FnOnce(*mut u8, usize) -> Option<usize>,
    ) -> Option<()> {
        let room = self.buffer.get_mut(self.length..)?;
        let most = most.min(room.len());
        let written = write(room.as_mut_ptr(), most)?;
        self.whole &= written < most;
        self.length += written.min(most);
        Some(())
    }

    /// Adds a decimal number.
    pub fn push_number(&mut self, number: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut left = number;
        loop {
            at -= 1;
            if let Some(place) = digits.get_mut(at) {
                *place = b'0' + (left % 10) as u8;
            }
            left /= 10;
            if left == 0 || at == 0 {
                break;
            }
        }
        self.push(from(&digits, at));
    }

    /// The text so far, if all of it had room.
    pub fn get(&self) -> Option<&[u8]> {
        if self.whole { self.buffer.get(..self.length) } else { None }
    }

    /// The text with a zero byte behind it, for the kernel.
    pub fn terminated(&mut self) -> Option<*const u8> {
        self.push(&[0]);
        self.whole.then_some(self.buffer.as_ptr())
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.length = 0;
        self.whole = true;
    }
}

/// The bytes from a place on; none behind the end.
pub fn from(bytes: &[u8], start: usize) -> &[u8] {
    bytes.get(start..).unwrap_or(&[])
}

/// The bytes before a place; all where that is behind the end.
pub fn before(bytes: &[u8], end: usize) -> &[u8] {
    bytes.get(..end).unwrap_or(bytes)
}

/// Writes a number in hexadecimal or decimal digits, padded with zeros to the whole of `place`.
pub fn write_digits(place: &mut [u8], number: u64, hexadecimal: bool) {
    let mut left = number;
    let mut at = place.len();
    while at > 0 {
        at -= 1;
        let digit = if hexadecimal { left % 16 } else { left % 10 } as u8;
        if let Some(place) = place.get_mut(at) {
            *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        }
        left = if hexadecimal { left / 16 } else { left / 10 };
    }
}
