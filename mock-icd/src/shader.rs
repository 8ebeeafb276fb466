//! What a shader's code says of its cost: how many threads one of its workgroups has, and how many instructions they
//! execute, each counted once as in the CUDA mock. Nothing is compiled or run.

use ash::vk;

use crate::boundary::{Chain, List, OutList, Outcome};
use crate::object;
use crate::state::STATE;

/// SPIR-V as far as cost is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shader {
    pub threads: u32,
    pub instructions: u32,
}

impl Default for Shader {
    /// For code that nobody gave: one warp that does nothing.
    fn default() -> Self {
        Self {
            threads: WARP,
            instructions: 0,
        }
    }
}

pub const WARP: u32 = 32;

/// SPIR-V's own numbers, of its specification's section 3.
mod spirv {
    pub const MAGIC: u32 = 0x0723_0203;
    /// Words before the first instruction.
    pub const HEADER: usize = 5;
    pub const LINE: u32 = 8;
    pub const EXECUTION_MODE: u32 = 16;
    pub const CONSTANT: u32 = 43;
    pub const SPEC_CONSTANT: u32 = 50;
    pub const FUNCTION: u32 = 54;
    pub const FUNCTION_PARAMETER: u32 = 55;
    pub const FUNCTION_END: u32 = 56;
    pub const VARIABLE: u32 = 59;
    pub const LOOP_MERGE: u32 = 246;
    pub const SELECTION_MERGE: u32 = 247;
    pub const LABEL: u32 = 248;
    pub const NO_LINE: u32 = 317;
    pub const EXECUTION_MODE_ID: u32 = 331;
    pub const LOCAL_SIZE: u32 = 17;
    pub const LOCAL_SIZE_ID: u32 = 38;
}

impl Shader {
    /// Of a module's words; what is no SPIR-V is as code that nobody gave.
    pub fn of(words: &[u32]) -> Self {
        let mut shader = Self::default();
        if words.first() != Some(&spirv::MAGIC) {
            return shader;
        }
        let mut sides_by_id: Option<[u32; 3]> = None;
        let mut constants = std::collections::BTreeMap::new();
        let mut inside = false;
        let mut rest = words.get(spirv::HEADER..).unwrap_or(&[]);
        while let Some(first) = rest.first() {
            let (length, code) = ((first >> 16) as usize, first & 0xffff);
            let Some(operands) = rest.get(1..length) else {
                break;
            };
            match (code, operands) {
                (spirv::EXECUTION_MODE, [_, spirv::LOCAL_SIZE, x, y, z]) => {
                    shader.threads = x.saturating_mul(*y).saturating_mul(*z).max(1);
                }
                (spirv::EXECUTION_MODE_ID, [_, spirv::LOCAL_SIZE_ID, x, y, z]) => {
                    sides_by_id = Some([*x, *y, *z]);
                }
                (spirv::CONSTANT | spirv::SPEC_CONSTANT, [_, id, value]) => {
                    constants.insert(*id, *value);
                }
                (spirv::FUNCTION, _) => inside = true,
                (spirv::FUNCTION_END, _) => inside = false,
                _ if inside && is_executed(code) => shader.instructions += 1,
                _ => {}
            }
            rest = &rest[length..];
        }
        if let Some(sides) = sides_by_id {
            let side = |id: &u32| constants.get(id).copied().unwrap_or(1);
            let threads = sides.iter().map(side).fold(1, u32::saturating_mul);
            shader.threads = threads.max(1);
        }
        shader
    }

    /// Of a pipeline's stage: its module, or the code chained to it.
    fn of_stage(stage: &vk::PipelineShaderStageCreateInfo<'_>) -> Self {
        if let Ok(module) = STATE.objects.find(stage.module) {
            return module.shader();
        }
        let chain = Chain::of(stage.p_next);
        let chained = chain.find::<vk::ShaderModuleCreateInfo<'_>>();
        chained.map_or_else(Self::default, |info| {
            Self::of(List::field(info.p_code).of(info.code_size / 4))
        })
    }
}

/// Labels, variables and what only describes take no time.
fn is_executed(code: u32) -> bool {
    use spirv::*;
    !matches!(
        code,
        LINE | NO_LINE | FUNCTION_PARAMETER | VARIABLE | LABEL | LOOP_MERGE | SELECTION_MERGE
    )
}

pub fn compute_pipelines(
    device: vk::Device,
    count: u32,
    infos: List<vk::ComputePipelineCreateInfo<'_>>,
    made: OutList<vk::Pipeline>,
) -> Outcome {
    let infos = infos.of(count as usize).iter();
    object::create_pipelines(
        device,
        infos.map(|info| Shader::of_stage(&info.stage)),
        made,
    )
}

/// A graphics pipeline costs what its first stage costs: that of vertices, or of tasks or meshes.
pub fn graphics_pipelines(
    device: vk::Device,
    count: u32,
    infos: List<vk::GraphicsPipelineCreateInfo<'_>>,
    made: OutList<vk::Pipeline>,
) -> Outcome {
    let first = vk::ShaderStageFlags::VERTEX
        | vk::ShaderStageFlags::TASK_EXT
        | vk::ShaderStageFlags::MESH_EXT;
    let shader = |info: &vk::GraphicsPipelineCreateInfo<'_>| {
        let stages = List::field(info.p_stages);
        let stages = stages.of(info.stage_count as usize).iter();
        let mut of_first = stages.filter(|stage| first.contains(stage.stage));
        of_first
            .next()
            .map_or_else(Shader::default, Shader::of_stage)
    };
    let infos = infos.of(count as usize).iter();
    object::create_pipelines(device, infos.map(shader), made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u32, operands: &[u32]) -> Vec<u32> {
        let mut words = vec![(operands.len() as u32 + 1) << 16 | code];
        words.extend(operands);
        words
    }

    /// A module with these instructions.
    fn module(instructions: &[(u32, &[u32])]) -> Vec<u32> {
        let mut words = vec![spirv::MAGIC, 0x0001_0000, 0, 100, 0];
        words.extend(
            instructions
                .iter()
                .flat_map(|(code, operands)| instruction(*code, operands)),
        );
        words
    }

    #[test]
    fn a_shader_has_its_workgroups_size_and_what_its_functions_execute() {
        const RETURN: u32 = 253;
        const I_ADD: u32 = 128;
        let function: [(u32, &[u32]); 6] = [
            (spirv::FUNCTION, &[1, 2, 0, 3]),
            (spirv::LABEL, &[4]),
            (spirv::VARIABLE, &[5, 6, 7]),
            (I_ADD, &[8, 9, 10, 11]),
            (RETURN, &[]),
            (spirv::FUNCTION_END, &[]),
        ];
        let literal: (u32, &[u32]) = (spirv::EXECUTION_MODE, &[2, spirv::LOCAL_SIZE, 8, 4, 2]);
        let mut words = module(&[literal]);
        words.extend(&module(&function)[spirv::HEADER..]);
        let wanted = Shader {
            threads: 64,
            instructions: 2,
        };
        assert_eq!(Shader::of(&words), wanted);
        words.truncate(words.len() - 1);
        assert_eq!(Shader::of(&words), wanted, "cut short, its end is missing");

        let by_id = module(&[
            (
                spirv::EXECUTION_MODE_ID,
                &[2, spirv::LOCAL_SIZE_ID, 20, 21, 20],
            ),
            (spirv::CONSTANT, &[1, 20, 3]),
            (spirv::SPEC_CONSTANT, &[1, 21, 5]),
        ]);
        assert_eq!(Shader::of(&by_id).threads, 45);
        assert_eq!(Shader::of(&[1, 2, 3]), Shader::default());
        assert_eq!(
            Shader::of(&module(&[(0, &[]), (1 << 15, &[])])),
            Shader::default()
        );
    }
}
