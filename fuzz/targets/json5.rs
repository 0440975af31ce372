#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| torc_fuzz::hold(bytes, torc_spec::SpecFormat::Json5));
