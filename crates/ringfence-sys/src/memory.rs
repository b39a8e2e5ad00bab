//! The memory that a program takes by being there.

/// Bytes of a page (x86-64, and most kernels elsewhere).
pub const PAGE: usize = 4096;

/// Gives memory back that was allocated and freed (`malloc_trim(3)`).
pub fn give_back() {
    // SAFETY: takes a number only, and the allocator is locked while it works.
    unsafe { libc::malloc_trim(0) };
}

pub use ringfence_start::code::let_go as let_go_of_code;

#[cfg(test)]
mod tests {
    #[test]
    fn a_program_goes_on_without_its_code() {
        let text = "constants and code are there again when they are needed".to_owned();
        super::let_go_of_code();
        assert_eq!(format!("{text}!").len(), text.len() + 1);
        super::let_go_of_code();
    }
}
