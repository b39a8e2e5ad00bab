//! A truststore for Java: PKCS#12 (RFC 7292) with certificates only, neither encrypted nor sealed,
//! since nothing in it is secret. Java takes a certificate for trusted when its bag says so in an
//! attribute of Oracle's.

use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
const INTEGER: u8 = 0x02;
const BMP_STRING: u8 = 0x1e;
/// `[0] EXPLICIT`
const CONTEXT_0: u8 = 0xa0;

/// 1.2.840.113549.1.7.1, PKCS#7 data
const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];
/// 1.2.840.113549.1.12.10.1.3, a bag with a certificate
const CERTIFICATE_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x0a, 0x01, 0x03];
/// 1.2.840.113549.1.9.22.1, an X.509 certificate
const X509: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x16, 0x01];
/// 1.2.840.113549.1.9.20, a name for people
const FRIENDLY_NAME: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x14];
/// 2.16.840.1.113894.746875.1.1, what a certificate is trusted for (Oracle)
const TRUSTED_FOR: &[u8] =
    &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf9, 0x66, 0xad, 0xca, 0x7b, 0x01, 0x01];
/// 2.5.29.37.0, anything
const ANYTHING: &[u8] = &[0x55, 0x1d, 0x25, 0x00];

/// The truststore's bytes.
pub(super) fn truststore<'a>(
    certificates: impl Iterator<Item = &'a CertificateDer<'static>>,
) -> Vec<u8> {
    let bags: Vec<u8> =
        certificates.enumerate().flat_map(|(index, certificate)| bag(index, certificate)).collect();
    let contents = data(&value(SEQUENCE, &bags));
    let safe = data(&value(SEQUENCE, &contents));
    value(SEQUENCE, &[value(INTEGER, &[3]), safe].concat())
}

fn bag(index: usize, certificate: &[u8]) -> Vec<u8> {
    let name: Vec<u8> =
        format!("ringfence-{index}").encode_utf16().flat_map(u16::to_be_bytes).collect();
    let attribute = |kind: &[u8], content: Vec<u8>| {
        value(SEQUENCE, &[value(OBJECT, kind), value(SET, &content)].concat())
    };
    let attributes = [
        attribute(FRIENDLY_NAME, value(BMP_STRING, &name)),
        attribute(TRUSTED_FOR, value(OBJECT, ANYTHING)),
    ];
    let x509 = [value(OBJECT, X509), value(CONTEXT_0, &value(OCTETS, certificate))].concat();
    let parts = [
        value(OBJECT, CERTIFICATE_BAG),
        value(CONTEXT_0, &value(SEQUENCE, &x509)),
        value(SET, &attributes.concat()),
    ];
    value(SEQUENCE, &parts.concat())
}

/// Content of the kind "data".
fn data(content: &[u8]) -> Vec<u8> {
    let inner = value(CONTEXT_0, &value(OCTETS, content));
    value(SEQUENCE, &[value(OBJECT, DATA), inner].concat())
}

/// A DER value: tag, length, content (X.690 §8.1).
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(tag);
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let skip = bytes.iter().take_while(|&&byte| byte == 0).count();
        out.push(0x80 | (bytes.len() - skip) as u8);
        out.extend_from_slice(&bytes[skip..]);
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_short_as_they_can_be() {
        assert_eq!(value(4, &[7; 3])[..2], [4, 3]);
        assert_eq!(value(4, &[7; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(value(4, &[7; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
    }
}
