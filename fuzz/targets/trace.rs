//! Any bytes as a capture: what is read of it is counted, judged, drawn and printed, and never more is counted than there is.
#![no_main]

use bentpipe_trace::{
    Limits, Recorder, Side, Trace, brief, csv, expert, json_with_limits, long, svg, xplot,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|capture: &[u8]| {
    let mut trace = Trace::new(Limits { connections: 8 });
    trace.record(Recorder::new(&[]));
    let _ = trace.take(capture);
    trace.finish();
    // No packet is in a file without its stamp and lengths.
    assert!(trace.packets() <= capture.len() as u64 / 12);
    for text in [brief, long, json_with_limits, csv, expert] {
        text(&trace, &[]);
    }
    for (index, connection) in trace.connections().iter().enumerate() {
        for side in [Side::A, Side::B] {
            let direction = connection.direction(side);
            assert!(direction.unique_bytes <= direction.data_bytes);
            if let Some(series) = trace.series(index) {
                svg(connection, series.stream(side), side);
                xplot(connection, series.stream(side), side, ("a", "b"));
            }
        }
    }
});
