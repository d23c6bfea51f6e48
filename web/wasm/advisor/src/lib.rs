//! The advisor for a browser: strings of JSON in and out, so that nothing but text crosses into WebAssembly.
//!
//! What is computed is in `bentpipe-advisor`; `make advisor` builds this, and `web/advisor/worker.js` calls it.
//! Begin with [`figure`].

use bentpipe_advisor::{
    Alternative, Answers, Figure, Measure, PRESETS, Preset, Question, RANGES, Range, advise,
    gateway_config, measure, scenario,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::wasm_bindgen;

#[derive(Serialize)]
struct Choices {
    version: &'static str,
    presets: [Preset; PRESETS.len()],
    ranges: [Range; RANGES.len()],
    alternatives: Vec<Choice>,
}

#[derive(Serialize)]
struct Choice {
    name: Alternative,
    label: &'static str,
    about: &'static str,
    pep: bool,
}

#[derive(Serialize)]
struct Column {
    name: Measure,
    label: String,
    /// What the users do is judged by it.
    headline: bool,
}

/// What a page can offer: presets, the sliders' ranges, the alternatives.
///
/// # Errors
/// None that is known.
#[wasm_bindgen]
pub fn choices() -> Result<String, String> {
    let alternatives = Alternative::ALL.map(|name| Choice {
        name,
        label: name.label(),
        about: name.about(),
        pep: name.is_pep(),
    });
    write(&Choices {
        version: env!("CARGO_PKG_VERSION"),
        presets: PRESETS,
        ranges: RANGES,
        alternatives: alternatives.into(),
    })
}

/// What is measured of a question: an array of names and labels.
///
/// # Errors
/// What is wrong with the question.
#[wasm_bindgen]
pub fn measures(question: &str) -> Result<String, String> {
    let question: Question = read(question)?;
    let columns = Measure::ALL.into_iter();
    let columns = columns.filter(|name| name.applies(&question));
    let columns = columns.map(|name| Column {
        name,
        label: name.label(&question),
        headline: name == Measure::headline(&question),
    });
    write(&columns.collect::<Vec<_>>())
}

/// A figure, by the names of an alternative and a measure.
///
/// # Errors
/// What is wrong with the question or the names, or that the simulator would not run it.
#[wasm_bindgen]
pub fn figure(question: &str, alternative: &str, what: &str) -> Result<String, String> {
    let question: Question = read(question)?;
    let figure = measure(&question, named(alternative)?, named(what)?);
    write(&figure.map_err(|error| error.to_string())?)
}

/// The words for an array of figures; `null` while some are missing.
///
/// # Errors
/// What is wrong with the question or the figures.
#[wasm_bindgen]
pub fn advice(question: &str, figures: &str) -> Result<String, String> {
    let figures: Vec<Figure> = read(figures)?;
    write(&advise(&read(question)?, Answers(&figures)))
}

/// The scenario of a figure.
///
/// # Errors
/// What is wrong with the question or the names.
#[wasm_bindgen]
pub fn scenario_text(
    question: &str,
    alternative: &str,
    what: &str,
    seed: u32,
) -> Result<String, String> {
    let question: Question = read(question)?;
    Ok(scenario(
        &question,
        named(alternative)?,
        named(what)?,
        seed.into(),
    ))
}

/// The gateway's configuration; empty where the alternative has no gateway.
///
/// # Errors
/// What is wrong with the question or the name.
#[wasm_bindgen]
pub fn gateway_text(question: &str, alternative: &str) -> Result<String, String> {
    let question: Question = read(question)?;
    Ok(gateway_config(&question, named(alternative)?).unwrap_or_default())
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn named<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::from(name)).map_err(|error| error.to_string())
}

fn write(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}
