#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| torc_fuzz::model::kept_results(data));
