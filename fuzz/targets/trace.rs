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
    // No packet is in a file without its stamp and lengths, unless these were compressed.
    let compressed = capture.starts_with(&[0x1f, 0x8b]);
    assert!(compressed || trace.packets() <= capture.len() as u64 / 12);
    for text in [brief, long, json_with_limits, csv, expert] {
        text(&mut String::new(), &trace, &[]).unwrap();
    }
    for (index, connection) in trace.connections().iter().enumerate() {
        for side in [Side::A, Side::B] {
            let direction = connection.direction(side);
            assert!(direction.unique_bytes <= direction.data_bytes);
            if let Some(series) = trace.series(index) {
                svg(connection, series.stream(side), side, None);
                svg(connection, series.stream(side), side, Some(0.5..1.5));
                for graph in xplot(connection, series.stream(side), side, ("a", "b")) {
                    let _ = graph.to_string();
                }
            }
        }
    }
});
