//! The layer's manifest, as the Khronos loader reads it.

/// The manifest for a tenant whose budget stands in a file: without the variable that enables the layer, so that no scrubbed environment takes it away.
/// HAMI_VULKAN_DISABLE stays, as a loader leaves out an implicit layer that nothing disables.
///
/// # Errors
/// `manifest` is no JSON.
pub fn without_switch(manifest: &str) -> Result<String, serde_json::Error> {
    let mut value: serde_json::Value = serde_json::from_str(manifest)?;
    if let Some(layer) = value
        .get_mut("layer")
        .and_then(serde_json::Value::as_object_mut)
    {
        layer.remove("enable_environment");
    }
    serde_json::to_string_pretty(&value)
}
