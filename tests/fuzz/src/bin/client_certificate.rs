#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| nodepulse_tests::fuzzing::client_certificate(input));
