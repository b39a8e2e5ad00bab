//! The tables by which a guest's kernel finds libkrun's devices (ACPI 6.4, without fixed hardware).
//!
//! libkrun tells of its devices on the kernel's command line (`virtio_mmio.device=`) and of its processor by a table of Intel's
//! MultiProcessor specification. Debian's kernels for virtual machines take neither. What they take is written here, for one
//! processor, where a PC's firmware would leave it.

/// Where firmware leaves tables, and kernels look for them: no memory of theirs.
pub const BASE: u64 = 0xe_0000;
/// All of them.
pub const SIZE: usize = 0x1000;

/// Where each of them is.
const ROOT: usize = 0x40;
const FIXED: usize = 0x100;
const PROCESSORS: usize = 0x300;
const DEVICES: usize = 0x400;
/// Where KVM has the interrupt controllers.
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;
/// Who made a table.
const MAKER: [u8; 6] = *b"RFENCE";

/// A virtio device that is reached by memory.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Its registers, a page.
    pub address: u32,
    /// The line by which it interrupts.
    pub interrupt: u32,
}

/// The tables, to be put at [`BASE`].
pub fn tables(devices: &[Device]) -> Vec<u8> {
    let mut page = vec![0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let place = |at: usize| BASE + at as u64;
    let root = [place(FIXED), place(PROCESSORS)].map(u64::to_le_bytes).concat();
    put(0, &pointer(place(ROOT)));
    put(ROOT, &table(b"XSDT", 1, &root));
    put(FIXED, &table(b"FACP", 6, &fixed(place(DEVICES))));
    put(PROCESSORS, &table(b"APIC", 5, &processors()));
    put(DEVICES, &table(b"DSDT", 2, &scope(devices)));
    page
}

/// What makes the sum of bytes zero.
fn missing(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte))
}

/// The root system description pointer.
fn pointer(root: u64) -> Vec<u8> {
    let mut bytes = [b"RSD PTR ".as_slice(), &[0], &MAKER, &[2], &[0; 4]].concat();
    bytes.extend([&36_u32.to_le_bytes()[..], &root.to_le_bytes(), &[0; 4]].concat());
    bytes[8] = missing(&bytes[..20]);
    bytes[32] = missing(&bytes);
    bytes
}

fn table(signature: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let length = (36 + body.len()) as u32;
    let mut bytes = [&signature[..], &length.to_le_bytes(), &[revision, 0], &MAKER].concat();
    bytes.extend([b"RINGFENC".as_slice(), &[1, 0, 0, 0], b"RNGF", &[1, 0, 0, 0], body].concat());
    bytes[9] = missing(&bytes);
    bytes
}

/// The fixed description: that there is none of a PC's fixed hardware, and where the devices are.
fn fixed(devices: u64) -> Vec<u8> {
    const HEADER: usize = 36;
    const NO_VGA: u16 = 1 << 2;
    const NO_CLOCK: u16 = 1 << 5;
    const NO_FIXED_BUTTONS: u32 = 1 << 4 | 1 << 5;
    const REDUCED: u32 = 1 << 20;
    let mut body = vec![0; 276 - HEADER];
    let mut put = |at: usize, bytes: &[u8]| {
        body[at - HEADER..at - HEADER + bytes.len()].copy_from_slice(bytes);
    };
    put(40, &(devices as u32).to_le_bytes());
    put(109, &(NO_VGA | NO_CLOCK).to_le_bytes());
    put(112, &(NO_FIXED_BUTTONS | REDUCED).to_le_bytes());
    put(131, &[4]);
    put(140, &devices.to_le_bytes());
    body
}

/// One processor, and the controller of the lines by which devices interrupt.
fn processors() -> Vec<u8> {
    let local = [&[0, 8, 0, 0][..], &1_u32.to_le_bytes()].concat();
    let lines = [&[1, 12, 2, 0][..], &IO_APIC.to_le_bytes(), &0_u32.to_le_bytes()].concat();
    [&LOCAL_APIC.to_le_bytes()[..], &0_u32.to_le_bytes(), &local, &lines].concat()
}

/// The length of a package of AML's, which counts itself.
fn package(content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let prefix = match length + 1 {
        short @ ..64 => vec![short as u8],
        _ => vec![0x40 | ((length + 2) & 15) as u8, ((length + 2) >> 4) as u8],
    };
    [&prefix, content].concat()
}

/// AML: all devices, below the system bus.
fn scope(devices: &[Device]) -> Vec<u8> {
    let mut content = b"\\_SB_".to_vec();
    for (number, device) in devices.iter().enumerate() {
        content.extend([0x5b, 0x82]);
        content.extend(package(&described(number as u8, device)));
    }
    [&[0x10][..], &package(&content)].concat()
}

/// AML: one device, as Linux's `virtio_mmio` looks for it (`LNRO0005`).
fn described(number: u8, device: &Device) -> Vec<u8> {
    let name = |name: &[u8; 4], value: &[u8]| [&[8], &name[..], value].concat();
    // To be read and written; of the device alone, by an edge, when it rises.
    let registers =
        [&[0x86, 9, 0, 1][..], &device.address.to_le_bytes(), &[0, 0x10, 0, 0]].concat();
    let line = [&[0x89, 6, 0, 3, 1][..], &device.interrupt.to_le_bytes()].concat();
    let resources = [&registers[..], &line, &[0x79, 0]].concat();
    let buffer = [&[0x0a, resources.len() as u8][..], &resources].concat();
    [
        format!("V{number:03}").into_bytes(),
        name(b"_HID", b"\x0dLNRO0005\0"),
        name(b"_UID", &[0x0a, number]),
        name(b"_CCA", &[1]),
        name(b"_CRS", &[&[0x11][..], &package(&buffer)].concat()),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    #[test]
    fn each_table_is_led_to_and_whole() {
        let page = tables(&[Device { address: 0xd000_2000, interrupt: 7 }]);
        let sum = |bytes: &[u8]| bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        assert_eq!((sum(&page[..20]), sum(&page[..36])), (0, 0));
        let at = |place: &[u8]| (number(place) - BASE) as usize;
        let whole = |place: usize| {
            let length = number(&page[place + 4..place + 8]) as usize;
            assert_eq!(sum(&page[place..place + length]), 0, "{place}");
            place..place + length
        };
        let root = &page[whole(at(&page[24..32]))];
        assert_eq!(&root[..4], b"XSDT");
        let (fixed, processors) =
            (&page[whole(at(&root[36..44]))], &page[whole(at(&root[44..52]))]);
        assert_eq!((&fixed[..4], fixed.len(), &processors[..4]), (&b"FACP"[..], 276, &b"APIC"[..]));
        assert_eq!(number(&fixed[40..44]), number(&fixed[140..148]));
        let devices = &page[whole(at(&fixed[140..148]))];
        assert_eq!(&devices[..4], b"DSDT");
        // No two are in each other's place.
        assert!(root.len() <= FIXED - ROOT && fixed.len() <= PROCESSORS - FIXED);
        assert!(processors.len() <= DEVICES - PROCESSORS && DEVICES + devices.len() <= SIZE);
    }

    #[test]
    fn lengths_of_packages_count_themselves() {
        assert_eq!(package(&[7; 62])[..2], [63, 7]);
        assert_eq!(package(&[7; 63])[..3], [0x41, 4, 7]);
        assert_eq!(package(&[7; 300])[..3], [0x4e, 0x12, 7]);
    }
}
