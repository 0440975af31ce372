#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| torc_fuzz::model::search_log(data));
