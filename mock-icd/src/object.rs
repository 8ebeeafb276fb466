//! Objects that are only made, named and destroyed, with the facts of a few that other commands need.

use ash::vk;

use crate::boundary::{In, List, New, Out, OutList, Outcome};
use crate::pass::{Framebuffer, RenderPass, View};
use crate::shader::Shader;
use crate::state::{Child, STATE, UNKNOWN_HANDLE};
use trace::vulkan::Named;

/// What other commands need to know of an object.
#[derive(Default)]
pub enum Facts {
    #[default]
    None,
    View(View),
    Framebuffer(Framebuffer),
    RenderPass(std::sync::Arc<RenderPass>),
}

pub struct Object {
    device: u64,
    kind: vk::ObjectType,
    word: &'static str,
    /// What shader modules and pipelines cost.
    shader: Shader,
    facts: Facts,
    /// Private data by slot, and what a descriptor update template or pipeline cache needs of numbers.
    private: std::sync::Mutex<std::collections::BTreeMap<u64, u64>>,
}

impl Child for Object {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Object {
    pub fn shader(&self) -> Shader {
        self.shader
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

fn add<T: Named>(device: vk::Device) -> Result<u64, vk::Result> {
    add_with::<T>(device, Shader::default(), Facts::None)
}

fn add_with<T: Named>(device: vk::Device, shader: Shader, facts: Facts) -> Result<u64, vk::Result> {
    STATE.devices.find(device)?;
    Ok(STATE.objects.insert(Object {
        device: vk::Handle::as_raw(device),
        kind: T::TYPE,
        word: T::WORD,
        shader,
        facts,
        private: std::sync::Mutex::default(),
    }))
}

pub fn create<T: Named>(device: vk::Device, made: New<T>) -> Outcome {
    made.put(add::<T>(device)?);
    Ok(())
}

/// One that other commands ask for its facts.
pub fn create_with<T: Named>(device: vk::Device, facts: Facts, made: New<T>) -> Outcome {
    made.put(add_with::<T>(device, Shader::default(), facts)?);
    Ok(())
}

/// One pipeline for each shader.
pub fn create_pipelines(
    device: vk::Device,
    shaders: impl Iterator<Item = Shader>,
    made: OutList<vk::Pipeline>,
) -> Outcome {
    let handles = shaders
        .map(|shader| add_with::<vk::Pipeline>(device, shader, Facts::None))
        .collect::<Result<Vec<_>, _>>()?;
    made.put(handles.into_iter().map(vk::Handle::from_raw));
    Ok(())
}

/// NULL is ignored, as for every vkDestroy command.
pub fn destroy<T: Named>(handle: T) -> Outcome {
    if handle.is_null() {
        return Ok(());
    }
    if STATE.objects.find(handle)?.kind != T::TYPE {
        return Err(UNKNOWN_HANDLE);
    }
    STATE.objects.remove(handle)?;
    trace::forget(T::WORD, handle.as_raw());
    Ok(())
}

/// What a destroyed device leaves behind.
pub fn forget_of(device: u64) {
    for (handle, object) in STATE.objects.remove_of(device) {
        trace::forget(object.word, handle);
    }
}

/// Private data is keyed by the object's own handle and kept in the slot.
pub fn set_private(slot: vk::PrivateDataSlot, object: u64, data: u64) -> Outcome {
    let slot = STATE.objects.find(slot)?;
    slot.private
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .insert(object, data);
    Ok(())
}

/// 0 where nothing was set.
pub fn private(slot: vk::PrivateDataSlot, object: u64, data: Out<u64>) -> Outcome {
    let slot = STATE.objects.find(slot)?;
    let kept = slot
        .private
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .get(&object)
        .copied();
    data.put(kept.unwrap_or(0));
    Ok(())
}

/// What a shader module is known by: a digest of its code.
pub fn identifier_of_info(
    info: In<vk::ShaderModuleCreateInfo<'_>>,
    identifier: Out<vk::ShaderModuleIdentifierEXT<'_>>,
) -> Outcome {
    put_identifier(digest(info)?, identifier);
    Ok(())
}

pub fn module_identifier(
    module: vk::ShaderModule,
    identifier: Out<vk::ShaderModuleIdentifierEXT<'_>>,
) -> Outcome {
    let digest = STATE
        .objects
        .find(module)?
        .private
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .get(&DIGEST)
        .copied();
    put_identifier(digest.unwrap_or(0), identifier);
    Ok(())
}

/// Where a shader module keeps its digest; no handle has this value.
const DIGEST: u64 = 0;

fn digest(info: In<vk::ShaderModuleCreateInfo<'_>>) -> Result<u64, vk::Result> {
    let info = info.demand()?;
    let code = List::field(info.p_code);
    // FNV-1a, word by word.
    Ok(code
        .of(info.code_size / 4)
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |digest: u64, word| {
            (digest ^ u64::from(*word)).wrapping_mul(0x0100_0000_01b3)
        }))
}

fn put_identifier(digest: u64, identifier: Out<vk::ShaderModuleIdentifierEXT<'_>>) {
    identifier.edit(|identifier| {
        identifier.identifier_size = 8;
        identifier.identifier.fill(0);
        identifier.identifier[..8].copy_from_slice(&digest.to_le_bytes());
    });
}

pub fn create_module(
    device: vk::Device,
    info: In<vk::ShaderModuleCreateInfo<'_>>,
    made: New<vk::ShaderModule>,
) -> Outcome {
    let digest = digest(info)?;
    let info = info.demand()?;
    let shader = Shader::of(List::field(info.p_code).of(info.code_size / 4));
    let handle = add_with::<vk::ShaderModule>(device, shader, Facts::None)?;
    let module = <vk::ShaderModule as vk::Handle>::from_raw(handle);
    STATE
        .objects
        .find(module)?
        .private
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .insert(DIGEST, digest);
    made.put(handle);
    Ok(())
}

/// A cache holds nothing beyond the header that the specification prescribes.
const CACHE_HEADER: usize = 32;

/// # Errors
/// VK_INCOMPLETE, with nothing written, where the header does not fit.
pub fn cache_data(
    cache: vk::PipelineCache,
    device: vk::Device,
    size: Out<usize>,
    data: OutList<u8>,
) -> Outcome {
    STATE.objects.find(cache)?;
    if data.is_null() {
        size.put(CACHE_HEADER);
        return Ok(());
    }
    if size.read().unwrap_or(0) < CACHE_HEADER {
        size.put(0);
        return Err(vk::Result::INCOMPLETE);
    }
    let profile = STATE.devices.find(device)?.physical.profile();
    let words = [
        CACHE_HEADER as u32,
        vk::PipelineCacheHeaderVersion::ONE.as_raw().cast_unsigned(),
        0x10de,
        profile.pci_device_id,
    ];
    data.put(
        words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .chain(crate::properties::CACHE_UUID),
    );
    size.put(CACHE_HEADER);
    Ok(())
}

pub fn merge_caches(into: vk::PipelineCache, count: u32, from: List<vk::PipelineCache>) -> Outcome {
    STATE.objects.find(into)?;
    from.of(count as usize)
        .iter()
        .try_for_each(|cache| STATE.objects.find(*cache).map(drop))
}
