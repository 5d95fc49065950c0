//! The part of the D-Bus wire format that a subscription needs: little endian, texts, and booleans.
//!
//! <https://dbus.freedesktop.org/doc/dbus-specification.html#message-protocol>

use std::io;

/// Longer than any expected answer. Longer messages are skipped.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// Maximum message size of the format.
const FORMAT_MAX_BYTES: usize = 128 << 20;

/// Length of the fixed part of a header, including the length of its fields.
pub(super) const FIXED: usize = 16;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// Codes of header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;

/// A method call with texts as arguments.
pub(super) struct MethodCall<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    pub(super) arguments: &'a [&'a str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    Return,
    Error,
    Signal,
    Other,
}

/// The relevant parts of a message; missing texts are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: MessageKind,
    /// Serial of the call that the message answers; 0 if it is not an answer.
    pub(super) reply_to: u32,
    pub(super) sender: String,
    pub(super) interface: String,
    pub(super) member: String,
    pub(super) error: String,
    pub(super) body: Vec<u8>,
}

impl MethodCall<'_> {
    /// Encodes the call. `serial` must not be 0.
    pub(super) fn bytes(&self, serial: u32) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        for argument in self.arguments {
            pad(&mut body, 4);
            put_text(&mut body, argument)?;
        }
        let mut fields = Vec::new();
        for (code, kind, text) in [
            (PATH, b'o', self.path),
            (INTERFACE, b's', self.interface),
            (MEMBER, b's', self.member),
            (DESTINATION, b's', self.destination),
        ] {
            pad(&mut fields, 8);
            fields.extend([code, 1, kind, 0]);
            put_text(&mut fields, text)?;
        }
        if !self.arguments.is_empty() {
            pad(&mut fields, 8);
            let signature = "s".repeat(self.arguments.len());
            fields.extend([SIGNATURE, 1, b'g', 0]);
            fields.push(u8::try_from(signature.len()).map_err(io::Error::other)?);
            fields.extend(signature.bytes());
            fields.push(0);
        }
        let mut message = vec![b'l', METHOD_CALL, 0, 1];
        message.extend(length(&body)?.to_le_bytes());
        message.extend(serial.to_le_bytes());
        message.extend(length(&fields)?.to_le_bytes());
        message.extend(&fields);
        pad(&mut message, 8);
        message.extend(&body);
        Ok(message)
    }
}

/// Returns the length of the message that begins with these bytes, in either byte order: a bus
/// passes messages on in the byte order of their sender.
///
/// # Errors
///
/// If no message begins with these bytes. Then it is unknown where the next one begins.
pub(super) fn size(fixed: &[u8; FIXED]) -> io::Result<usize> {
    let order: fn([u8; 4]) -> u32 = match fixed.first() {
        Some(&b'l') => u32::from_le_bytes,
        Some(&b'B') => u32::from_be_bytes,
        Some(_) | None => return Err(malformed()),
    };
    let number = |at| usize::try_from(order(four(fixed, at)?)).map_err(io::Error::other);
    let header = FIXED.saturating_add(number(12)?).next_multiple_of(8);
    let size = header.saturating_add(number(4)?);
    if size > FORMAT_MAX_BYTES {
        Err(malformed())
    } else {
        Ok(size)
    }
}

/// Parses a whole message, of the length that [`size`] returned.
pub(super) fn parse(bytes: &[u8]) -> io::Result<Message> {
    if bytes.first() != Some(&b'l') {
        return Err(malformed());
    }
    let mut message = Message {
        kind: match bytes.get(1) {
            Some(&METHOD_RETURN) => MessageKind::Return,
            Some(&ERROR) => MessageKind::Error,
            Some(&SIGNAL) => MessageKind::Signal,
            Some(_) | None => MessageKind::Other,
        },
        reply_to: 0,
        sender: String::new(),
        interface: String::new(),
        member: String::new(),
        error: String::new(),
        body: Vec::new(),
    };
    let end = FIXED.saturating_add(number(bytes, 12)?);
    let mut at = FIXED;
    while at < end {
        let (code, kind) = field(bytes, at)?;
        let value = at + 4;
        at = match kind {
            b'u' => {
                let number = u32::from_le_bytes(four(bytes, value)?);
                if code == REPLY_SERIAL {
                    message.reply_to = number;
                }
                value + 4
            }
            b's' | b'o' => {
                let text = text(bytes, value)?;
                let place = match code {
                    SENDER => Some(&mut message.sender),
                    INTERFACE => Some(&mut message.interface),
                    MEMBER => Some(&mut message.member),
                    ERROR_NAME => Some(&mut message.error),
                    _ => None,
                };
                let after = value + 4 + text.len() + 1;
                if let Some(place) = place {
                    text.clone_into(place);
                }
                after
            }
            b'g' => value + 2 + usize::from(*bytes.get(value).ok_or_else(malformed)?),
            _ => return Err(malformed()),
        }
        .next_multiple_of(8);
    }
    let body = bytes.get(end.next_multiple_of(8)..).ok_or_else(malformed)?;
    message.body = body.to_vec();
    Ok(message)
}

impl Message {
    /// Returns the body, if it is a boolean.
    pub(super) fn boolean(&self) -> io::Result<bool> {
        boolean(&self.body)
    }

    /// Returns the body, if it is a variant that contains a boolean.
    pub(super) fn variant_boolean(&self) -> io::Result<bool> {
        // The signature of the value, padded to its alignment.
        match self.body.split_first_chunk() {
            Some(([1, b'b', 0, _], value)) => boolean(value),
            Some(_) | None => Err(malformed()),
        }
    }

    /// Returns the first text of the body.
    pub(super) fn text(&self) -> io::Result<&str> {
        text(&self.body, 0)
    }
}

/// Returns the code and the type of the field at `at`. All fields of a bus have a type of one
/// letter.
fn field(bytes: &[u8], at: usize) -> io::Result<(u8, u8)> {
    match bytes.get(at..at + 4) {
        Some([code, 1, kind, 0]) => Ok((*code, *kind)),
        Some(_) | None => Err(malformed()),
    }
}

fn text(bytes: &[u8], at: usize) -> io::Result<&str> {
    let len = number(bytes, at)?;
    let text = bytes.get(at + 4..).and_then(|rest| rest.get(..len));
    let text = text.ok_or_else(malformed)?;
    str::from_utf8(text).map_err(|_| malformed())
}

fn boolean(bytes: &[u8]) -> io::Result<bool> {
    match number(bytes, 0)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(malformed()),
    }
}

fn number(bytes: &[u8], at: usize) -> io::Result<usize> {
    usize::try_from(u32::from_le_bytes(four(bytes, at)?)).map_err(io::Error::other)
}

fn four(bytes: &[u8], at: usize) -> io::Result<[u8; 4]> {
    let four = bytes.get(at..at.saturating_add(4));
    four.and_then(|four| four.try_into().ok())
        .ok_or_else(malformed)
}

fn put_text(to: &mut Vec<u8>, text: &str) -> io::Result<()> {
    to.extend(length(text.as_bytes())?.to_le_bytes());
    to.extend(text.bytes());
    to.push(0);
    Ok(())
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a known D-Bus message")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Header field: the number of descriptors that come with a message.
    const UNIX_FDS: u8 = 9;

    pub fn message(kind: u8, fields: &[(u8, &str)], numbers: &[(u8, u32)], body: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        for (code, number) in numbers {
            all.extend([*code, 1, b'u', 0]);
            all.extend(number.to_le_bytes());
        }
        for (code, text) in fields {
            pad(&mut all, 8);
            all.extend([*code, 1, b's', 0]);
            put_text(&mut all, text).unwrap();
        }
        let mut message = vec![b'l', kind, 0, 1];
        message.extend(length(body).unwrap().to_le_bytes());
        message.extend(9_u32.to_le_bytes());
        message.extend(length(&all).unwrap().to_le_bytes());
        message.extend(all);
        pad(&mut message, 8);
        message.extend(body);
        message
    }

    /// `PrepareForShutdown`, encoded as logind sends it.
    pub fn prepare(sender: &str, begins: bool) -> Vec<u8> {
        let fields = [
            (SENDER, sender),
            (INTERFACE, "org.freedesktop.login1.Manager"),
            (MEMBER, "PrepareForShutdown"),
        ];
        message(SIGNAL, &fields, &[], &u32::from(begins).to_le_bytes())
    }

    /// `NameOwnerChanged`, encoded as a bus sends it after logind was started.
    pub fn new_owner(name: &str) -> Vec<u8> {
        const BUS: &str = "org.freedesktop.DBus";
        let mut body = Vec::new();
        for text in ["org.freedesktop.login1", "", name] {
            pad(&mut body, 4);
            put_text(&mut body, text).unwrap();
        }
        let fields = [
            (SENDER, BUS),
            (INTERFACE, BUS),
            (MEMBER, "NameOwnerChanged"),
        ];
        message(SIGNAL, &fields, &[], &body)
    }

    /// An answer to call `serial`: a variant that contains a boolean.
    pub fn state(sender: &str, serial: u32, preparing: bool) -> Vec<u8> {
        let numbers = [(REPLY_SERIAL, serial)];
        let body = [1, b'b', 0, 0, u8::from(preparing), 0, 0, 0];
        message(METHOD_RETURN, &[(SENDER, sender)], &numbers, &body)
    }

    /// An answer to call `serial`: the error `name`.
    pub fn refusal(sender: &str, serial: u32, name: &str) -> Vec<u8> {
        let numbers = [(REPLY_SERIAL, serial)];
        let fields = [(ERROR_NAME, name), (SENDER, sender)];
        message(ERROR, &fields, &numbers, b"\x03\0\0\0no!\0")
    }

    /// A signal of another program, with one field of an unknown type.
    pub fn unknown_field(sender: &str) -> Vec<u8> {
        let mut signal = message(SIGNAL, &[(SENDER, sender), (77, "")], &[], &[]);
        let field = signal.windows(4).position(|four| four == [77, 1, b's', 0]);
        signal[field.unwrap() + 2] = b'v';
        signal
    }

    /// A signal of another program, in the other byte order.
    pub fn big_endian(sender: &str, body: &[u8]) -> Vec<u8> {
        let mut signal = message(SIGNAL, &[(SENDER, sender)], &[], body);
        signal[0] = b'B';
        for at in [4, 8, 12, 20] {
            signal[at..at + 4].reverse();
        }
        signal
    }

    /// A signal of another program.
    pub fn signal(sender: &str, body: &[u8]) -> Vec<u8> {
        message(SIGNAL, &[(SENDER, sender)], &[], body)
    }

    /// An answer to call `serial`.
    pub fn answer(sender: &str, serial: u32) -> Vec<u8> {
        let numbers = [(REPLY_SERIAL, serial)];
        message(METHOD_RETURN, &[(SENDER, sender)], &numbers, &[])
    }

    /// An answer to call `serial` that comes with a descriptor.
    pub fn answer_with_descriptor(sender: &str, serial: u32) -> Vec<u8> {
        let numbers = [(REPLY_SERIAL, serial), (UNIX_FDS, 1)];
        message(METHOD_RETURN, &[(SENDER, sender)], &numbers, &[])
    }

    /// A signal with a descriptor, from any program.
    pub fn signal_with_descriptor(sender: &str) -> Vec<u8> {
        let fields = [(SENDER, sender), (INTERFACE, "a.b"), (MEMBER, "C")];
        message(SIGNAL, &fields, &[(UNIX_FDS, 1)], &[])
    }

    #[test]
    fn a_call_is_encoded_as_specified() {
        let call = MethodCall {
            destination: "a.b",
            path: "/a",
            interface: "a.b",
            member: "C",
            arguments: &["xyz", "w"],
        };
        let expected: &[&[u8]] = &[
            b"l\x01\x00\x01\x0e\x00\x00\x00\x07\x00\x00\x00\x48\x00\x00\x00",
            b"\x01\x01o\x00\x02\x00\x00\x00/a\x00\x00\x00\x00\x00\x00",
            b"\x02\x01s\x00\x03\x00\x00\x00a.b\x00\x00\x00\x00\x00",
            b"\x03\x01s\x00\x01\x00\x00\x00C\x00\x00\x00\x00\x00\x00\x00",
            b"\x06\x01s\x00\x03\x00\x00\x00a.b\x00\x00\x00\x00\x00",
            b"\x08\x01g\x00\x02ss\x00",
            b"\x03\x00\x00\x00xyz\x00\x01\x00\x00\x00w\x00",
        ];
        let bytes = call.bytes(7).unwrap();
        let fixed: [u8; FIXED] = bytes[..FIXED].try_into().unwrap();
        assert_eq!(size(&fixed).unwrap(), bytes.len());
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn a_message_is_parsed_and_a_truncated_one_is_rejected() {
        let whole = prepare(":1.3", true);
        let read = parse(&whole).unwrap();
        assert_eq!(
            (read.kind, read.sender.as_str()),
            (MessageKind::Signal, ":1.3")
        );
        assert_eq!(read.member, "PrepareForShutdown");
        assert!(read.boolean().unwrap());
        assert_eq!(parse(&answer(":1.3", 5)).unwrap().reply_to, 5);
        assert_eq!(
            parse(&answer_with_descriptor(":1.3", 5)).unwrap().reply_to,
            5
        );
        let refusal = parse(&refusal(":1.3", 5, "a.b")).unwrap();
        assert_eq!((refusal.kind, refusal.reply_to), (MessageKind::Error, 5));
        assert_eq!(
            (&refusal.error[..], refusal.text().unwrap()),
            ("a.b", "no!")
        );
        for len in 0..whole.len() - 4 {
            assert!(parse(&whole[..len]).is_err(), "{len} bytes of it");
        }
        // Parsing ends for any bytes.
        for place in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut other = whole.clone();
                other[place] = byte;
                let _any: io::Result<Message> = parse(&other);
            }
        }
    }

    #[test]
    fn the_length_is_known_in_both_byte_orders_and_up_to_the_maximum_of_the_format() {
        let fixed = |first, body: [u8; 4], fields: [u8; 4]| {
            let mut fixed = [0; FIXED];
            fixed[0] = first;
            fixed[4..8].copy_from_slice(&body);
            fixed[12..].copy_from_slice(&fields);
            size(&fixed).ok()
        };
        // 16 bytes of fixed part, and fields that are padded to a multiple of 8.
        assert_eq!(fixed(b'l', [5, 0, 0, 0], [9, 0, 0, 0]), Some(16 + 16 + 5));
        assert_eq!(fixed(b'B', [0, 0, 0, 5], [0, 0, 0, 9]), Some(16 + 16 + 5));
        let body: u32 = (128 << 20) - 16;
        for (first, body, more) in [
            (b'l', body.to_le_bytes(), (body + 1).to_le_bytes()),
            (b'B', body.to_be_bytes(), (body + 1).to_be_bytes()),
        ] {
            assert_eq!(fixed(first, body, [0; 4]), Some(128 << 20));
            assert_eq!(fixed(first, more, [0; 4]), None);
            assert_eq!(fixed(first, [0xff; 4], [0xff; 4]), None);
        }
        assert_eq!(fixed(b'L', [0; 4], [0; 4]), None, "no byte order");
    }

    #[test]
    fn what_is_not_understood_is_rejected_with_a_length() {
        for (bytes, case) in [
            (unknown_field(":1.3"), "type of a field"),
            (big_endian(":1.3", b"body"), "byte order"),
            ([&b"B\x04\0\x01"[..], &[0; 12]].concat(), "no fields"),
        ] {
            let fixed: [u8; FIXED] = bytes[..FIXED].try_into().unwrap();
            assert_eq!(size(&fixed).unwrap(), bytes.len(), "{case}");
            assert!(parse(&bytes).is_err(), "{case}");
        }
    }

    #[test]
    fn a_variant_is_a_boolean_only_if_its_type_is() {
        for preparing in [false, true] {
            let read = parse(&state(":1.3", 5, preparing)).unwrap();
            assert_eq!(read.variant_boolean().unwrap(), preparing);
        }
        for (body, case) in [
            (&[1, b'u', 0, 0, 1, 0, 0, 0][..], "a number"),
            (&[1, b'b', 0, 0, 2, 0, 0, 0], "neither 0 nor 1"),
            (&[1, b'b', 0, 0, 1, 0, 0], "truncated"),
            (&[1, b'b', 0], "no value"),
        ] {
            let read = parse(&message(METHOD_RETURN, &[], &[], body)).unwrap();
            assert!(read.variant_boolean().is_err(), "{case}");
        }
    }
}
