//! `bindgen FILE.wasm FOLDER`: writes the module and the JavaScript that loads it in a browser.

use std::env;
use std::error::Error;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let [_, module, folder] = &arguments[..] else {
        return Err("give the module and the folder to write into".into());
    };
    let mut bindgen = Bindgen::new();
    bindgen.web(true)?;
    bindgen
        .input_path(module)
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)?;
    Ok(())
}
