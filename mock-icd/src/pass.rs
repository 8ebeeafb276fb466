//! Render passes and dynamic rendering: which attachments a command buffer has at hand, what is cleared when they begin
//! (VK_ATTACHMENT_LOAD_OP_CLEAR, vkCmdClearAttachments), and what is resolved when they end. Draws between compute nothing.

use std::sync::Arc;

use ash::vk::{self, Handle};

use crate::binding::Member;
use crate::boundary::{Chain, In, List, New, Outcome, clear_color_of, clear_words};
use crate::command::{Takes, record};
use crate::format::{self, Format, Texel};
use crate::image::Image;
use crate::layout::Spot;
use crate::object::{self, Facts};
use crate::raster;
use crate::state::STATE;

const COLOR: vk::ImageAspectFlags = vk::ImageAspectFlags::COLOR;
const DEPTH: vk::ImageAspectFlags = vk::ImageAspectFlags::DEPTH;
const STENCIL: vk::ImageAspectFlags = vk::ImageAspectFlags::STENCIL;

/// What an image view names.
pub struct View {
    image: vk::Image,
    format: vk::Format,
    level: u32,
    layer: u32,
    layers: u32,
}

pub struct Framebuffer {
    /// Empty for an imageless one.
    views: Vec<vk::ImageView>,
    layers: u32,
}

pub struct RenderPass {
    /// Of each attachment, the aspects that are cleared when it is first used.
    cleared: Vec<vk::ImageAspectFlags>,
    subpasses: Vec<Subpass>,
}

/// Attachments by their number; VK_ATTACHMENT_UNUSED is beyond all.
struct Subpass {
    colors: Vec<u32>,
    resolves: Vec<u32>,
    depth: u32,
    depth_resolve: Option<DepthResolve>,
    inputs: Vec<u32>,
    view_mask: u32,
}

struct DepthResolve {
    to: u32,
    depth: vk::ResolveModeFlags,
    stencil: vk::ResolveModeFlags,
}

/// An attachment whose image was found.
#[derive(Clone)]
struct Attached {
    image: Arc<Image>,
    format: &'static Format,
    level: u32,
    /// The first, and how many: slices where the image is a volume.
    layer: u32,
    layers: u32,
}

struct Resolve {
    from: Attached,
    to: Attached,
    aspect: vk::ImageAspectFlags,
    mode: vk::ResolveModeFlags,
}

/// The attachments of a subpass, or of dynamic rendering.
pub struct Targets {
    colors: Vec<Option<Attached>>,
    depth: Option<Attached>,
    stencil: Option<Attached>,
    resolves: Vec<Resolve>,
    area: vk::Rect2D,
    layers: Vec<u32>,
}

/// Where a command buffer is between the beginning and the end of a render pass.
pub struct Current {
    pub targets: Arc<Targets>,
    pass: Option<Progress>,
}

/// A render pass that has subpasses to come.
struct Progress {
    pass: Arc<RenderPass>,
    views: Vec<Option<Attached>>,
    subpass: usize,
    area: vk::Rect2D,
    layers: u32,
}

pub fn create_view(
    device: vk::Device,
    info: In<vk::ImageViewCreateInfo<'_>>,
    view: New<vk::ImageView>,
) -> Outcome {
    let info = info.demand()?;
    let range = info.subresource_range;
    let facts = Facts::View(View {
        image: info.image,
        format: info.format,
        level: range.base_mip_level,
        layer: range.base_array_layer,
        layers: range.layer_count,
    });
    object::create_with(device, facts, view)
}

pub fn create_framebuffer(
    device: vk::Device,
    info: In<vk::FramebufferCreateInfo<'_>>,
    framebuffer: New<vk::Framebuffer>,
) -> Outcome {
    let info = info.demand()?;
    let views = if info.flags.contains(vk::FramebufferCreateFlags::IMAGELESS) {
        Vec::new()
    } else {
        List::field(info.p_attachments)
            .of(info.attachment_count as usize)
            .to_vec()
    };
    let facts = Facts::Framebuffer(Framebuffer {
        views,
        layers: info.layers,
    });
    object::create_with(device, facts, framebuffer)
}

/// The aspects of an attachment that its load operations clear.
fn cleared(
    format: vk::Format,
    load: vk::AttachmentLoadOp,
    stencil: vk::AttachmentLoadOp,
) -> vk::ImageAspectFlags {
    let clear = vk::AttachmentLoadOp::CLEAR;
    let mut aspects = vk::ImageAspectFlags::empty();
    match format::find(format).and_then(|format| format.shape.depth_stencil) {
        None if load == clear => aspects |= COLOR,
        None => {}
        Some(both) => {
            if both.depth.is_some() && load == clear {
                aspects |= DEPTH;
            }
            if both.stencil.is_some() && stencil == clear {
                aspects |= STENCIL;
            }
        }
    }
    aspects
}

pub fn create(
    device: vk::Device,
    info: In<vk::RenderPassCreateInfo<'_>>,
    pass: New<vk::RenderPass>,
) -> Outcome {
    let info = info.demand()?;
    let masks = Chain::of(info.p_next)
        .find::<vk::RenderPassMultiviewCreateInfo<'_>>()
        .map(|views| {
            List::field(views.p_view_masks)
                .of(views.subpass_count as usize)
                .to_vec()
        })
        .unwrap_or_default();
    let numbers = |list: *const vk::AttachmentReference, count: u32| {
        let list = List::field(list);
        list.of(count as usize)
            .iter()
            .map(|reference| reference.attachment)
            .collect::<Vec<_>>()
    };
    let subpasses = List::field(info.p_subpasses);
    let subpasses = subpasses.of(info.subpass_count as usize).iter().enumerate();
    let attachments = List::field(info.p_attachments);
    let attachments = attachments.of(info.attachment_count as usize).iter();
    let facts = Facts::RenderPass(Arc::new(RenderPass {
        cleared: attachments
            .map(|one| cleared(one.format, one.load_op, one.stencil_load_op))
            .collect(),
        subpasses: subpasses
            .map(|(index, subpass)| Subpass {
                colors: numbers(subpass.p_color_attachments, subpass.color_attachment_count),
                resolves: numbers(
                    subpass.p_resolve_attachments,
                    subpass.color_attachment_count,
                ),
                depth: In::field(subpass.p_depth_stencil_attachment)
                    .get()
                    .map_or(vk::ATTACHMENT_UNUSED, |reference| reference.attachment),
                depth_resolve: None,
                inputs: numbers(subpass.p_input_attachments, subpass.input_attachment_count),
                view_mask: masks.get(index).copied().unwrap_or(0),
            })
            .collect(),
    }));
    object::create_with(device, facts, pass)
}

pub fn create2(
    device: vk::Device,
    info: In<vk::RenderPassCreateInfo2<'_>>,
    pass: New<vk::RenderPass>,
) -> Outcome {
    let info = info.demand()?;
    let numbers = |list: *const vk::AttachmentReference2<'_>, count: u32| {
        let list = List::field(list);
        list.of(count as usize)
            .iter()
            .map(|reference| reference.attachment)
            .collect::<Vec<_>>()
    };
    let one = |reference: *const vk::AttachmentReference2<'_>| {
        In::field(reference)
            .get()
            .map_or(vk::ATTACHMENT_UNUSED, |reference| reference.attachment)
    };
    let subpasses = List::field(info.p_subpasses);
    let subpasses = subpasses.of(info.subpass_count as usize).iter();
    let attachments = List::field(info.p_attachments);
    let attachments = attachments.of(info.attachment_count as usize).iter();
    let facts = Facts::RenderPass(Arc::new(RenderPass {
        cleared: attachments
            .map(|one| cleared(one.format, one.load_op, one.stencil_load_op))
            .collect(),
        subpasses: subpasses
            .map(|subpass| Subpass {
                colors: numbers(subpass.p_color_attachments, subpass.color_attachment_count),
                resolves: numbers(
                    subpass.p_resolve_attachments,
                    subpass.color_attachment_count,
                ),
                depth: one(subpass.p_depth_stencil_attachment),
                depth_resolve: Chain::of(subpass.p_next)
                    .find::<vk::SubpassDescriptionDepthStencilResolve<'_>>()
                    .map(|resolve| DepthResolve {
                        to: one(resolve.p_depth_stencil_resolve_attachment),
                        depth: resolve.depth_resolve_mode,
                        stencil: resolve.stencil_resolve_mode,
                    }),
                inputs: numbers(subpass.p_input_attachments, subpass.input_attachment_count),
                view_mask: subpass.view_mask,
            })
            .collect(),
    }));
    object::create_with(device, facts, pass)
}

impl RenderPass {
    /// The views, as bits, in which subpasses use an attachment; `None` where none does, and then nothing is loaded.
    fn used_in(&self, attachment: u32) -> Option<u32> {
        let uses = |subpass: &&Subpass| {
            let resolve = subpass.depth_resolve.as_ref().map(|resolve| resolve.to);
            [&subpass.colors, &subpass.resolves, &subpass.inputs]
                .into_iter()
                .flatten()
                .chain([&subpass.depth])
                .chain(&resolve)
                .any(|number| *number == attachment)
        };
        let masks = self
            .subpasses
            .iter()
            .filter(uses)
            .map(|subpass| subpass.view_mask);
        masks.reduce(|all, mask| all | mask)
    }
}

/// The layers that are rendered to: one for each view, or the first so many.
fn layers(view_mask: u32, count: u32) -> Vec<u32> {
    if view_mask == 0 {
        (0..count).collect()
    } else {
        (0..32).filter(|view| view_mask >> view & 1 != 0).collect()
    }
}

fn attached(view: vk::ImageView) -> Option<Attached> {
    if view.is_null() {
        return None;
    }
    let object = STATE.objects.find(view).ok()?;
    let Facts::View(view) = object.facts() else {
        return None;
    };
    let image = STATE.images.find(view.image).ok()?;
    let all = if image.kind == vk::ImageType::TYPE_3D {
        image.layout.level(0, view.level)?.depth
    } else {
        image.layers
    };
    Some(Attached {
        format: format::find(view.format)?,
        level: view.level,
        layer: view.layer,
        layers: view.layers.min(all.saturating_sub(view.layer)),
        image,
    })
}

impl Attached {
    /// Goes over every row of an area in some of the view's layers: where it begins, and how many texels it has.
    fn each_row(&self, area: vk::Rect2D, layers: &[u32], mut act: impl FnMut(Spot, usize)) {
        let Some(size) = self.image.layout.level(0, self.level) else {
            return;
        };
        let start = |offset: i32| u32::try_from(offset).unwrap_or(0);
        let (x, y) = (start(area.offset.x), start(area.offset.y));
        let right = x.saturating_add(area.extent.width).min(size.width);
        let bottom = y.saturating_add(area.extent.height).min(size.height);
        let volume = self.image.kind == vk::ImageType::TYPE_3D;
        for layer in layers.iter().filter(|layer| **layer < self.layers) {
            let layer = self.layer + layer;
            for y in y..bottom {
                let spot = Spot {
                    plane: 0,
                    level: self.level,
                    layer: if volume { 0 } else { layer },
                    x,
                    y,
                    z: if volume { layer } else { 0 },
                };
                if x < right {
                    act(spot, (right - x) as usize);
                }
            }
        }
    }

    fn clear(
        &self,
        on: Member,
        area: vk::Rect2D,
        layers: &[u32],
        aspects: vk::ImageAspectFlags,
        words: [u32; 4],
    ) {
        let samples = self.image.samples as usize;
        let block = self.format.shape.planes[0].block.bytes as usize;
        if self.format.shape.depth_stencil.is_none() {
            let texel = raster::color_block(&self.format.shape.planes[0], words);
            self.each_row(area, layers, |spot, width| {
                self.image.write(on, spot, &texel.repeat(width * samples));
            });
            return;
        }
        let value = vk::ClearDepthStencilValue {
            depth: f32::from_bits(words[0]),
            stencil: words[1],
        };
        self.each_row(area, layers, |spot, width| {
            let mut row = vec![0; width * samples * block];
            self.image.read(on, spot, &mut row);
            raster::put_depth_stencil(self.format, aspects, value, &mut row);
            self.image.write(on, spot, &row);
        });
    }

    /// The cost of clearing an area.
    fn filling(&self, area: vk::Rect2D, layers: usize) -> Takes {
        let texels = u64::from(area.extent.width) * u64::from(area.extent.height);
        Takes::Fill {
            bytes: texels * self.image.layout.block(0) * layers as u64,
        }
    }
}

impl Resolve {
    fn carry_out(&self, on: Member, area: vk::Rect2D, layers: &[u32]) {
        if self.aspect == COLOR {
            for layer in layers {
                let one = |view: &Attached| vk::ImageSubresourceLayers {
                    aspect_mask: COLOR,
                    mip_level: view.level,
                    base_array_layer: view.layer + layer,
                    layer_count: 1,
                };
                let offset = vk::Offset3D {
                    x: area.offset.x,
                    y: area.offset.y,
                    z: 0,
                };
                let region = vk::ImageResolve {
                    src_subresource: one(&self.from),
                    src_offset: offset,
                    dst_subresource: one(&self.to),
                    dst_offset: offset,
                    extent: area.extent.into(),
                };
                raster::resolve_one(on, &self.from.image, &self.to.image, &region);
            }
            return;
        }
        let plane = &self.from.format.shape.planes[0];
        let (one, samples) = (plane.block.bytes as usize, self.from.image.samples as usize);
        let stencil = self
            .from
            .format
            .shape
            .depth_stencil
            .and_then(|both| both.stencil);
        self.to.each_row(area, layers, |spot, width| {
            let source = Spot {
                level: self.from.level,
                layer: self.from.layer + (spot.layer - self.to.layer),
                ..spot
            };
            let mut from = vec![0; width * one * samples];
            self.from.image.read(on, source, &mut from);
            let mut to = vec![0; width * one];
            self.to.image.read(on, spot, &mut to);
            for (to, texel) in to
                .chunks_exact_mut(one)
                .zip(from.chunks_exact(one * samples))
            {
                let samples = || texel.chunks_exact(one);
                if self.aspect == DEPTH {
                    let depths = samples().filter_map(|sample| plane.decode(sample));
                    let depths: Vec<f64> = depths.map(|texel| texel.floats()[0]).collect();
                    let depth = one_of(&depths, self.mode);
                    plane.encode(Texel::Float([depth, 0.0, 0.0, 1.0]), to);
                } else if let Some(at) = stencil {
                    let at = at as usize;
                    let values: Vec<f64> = samples().map(|sample| sample[at].into()).collect();
                    to[at] = one_of(&values, self.mode) as u8;
                }
            }
            self.to.image.write(on, spot, &to);
        });
    }
}

/// What a resolve mode makes of a texel's samples.
fn one_of(samples: &[f64], mode: vk::ResolveModeFlags) -> f64 {
    let values = samples.iter().copied();
    match mode {
        vk::ResolveModeFlags::AVERAGE => values.sum::<f64>() / samples.len().max(1) as f64,
        vk::ResolveModeFlags::MIN => values.reduce(f64::min).unwrap_or(0.0),
        vk::ResolveModeFlags::MAX => values.reduce(f64::max).unwrap_or(0.0),
        _ => samples.first().copied().unwrap_or(0.0),
    }
}

fn record_clear(
    commands: vk::CommandBuffer,
    to: Attached,
    area: vk::Rect2D,
    layers: Vec<u32>,
    (aspects, words): (vk::ImageAspectFlags, [u32; 4]),
) -> Outcome {
    record(commands, to.filling(area, layers.len()), move |moment| {
        to.clear(moment.on, area, &layers, aspects, words);
    })
}

/// What the end of a subpass, or of dynamic rendering, resolves.
fn record_resolves(commands: vk::CommandBuffer, targets: &Arc<Targets>) -> Outcome {
    if targets.resolves.is_empty() {
        return Ok(());
    }
    let bytes = |resolve: &Resolve| match resolve.from.filling(targets.area, targets.layers.len()) {
        Takes::Fill { bytes } => bytes,
        _ => 0,
    };
    let takes = Takes::Copy {
        from: true,
        to: true,
        bytes: targets.resolves.iter().map(bytes).sum(),
    };
    let targets = Arc::clone(targets);
    record(commands, takes, move |moment| {
        for resolve in &targets.resolves {
            resolve.carry_out(moment.on, targets.area, &targets.layers);
        }
    })
}

impl Progress {
    fn targets(&self) -> Targets {
        let view = |number: u32| self.views.get(number as usize).cloned().flatten();
        let Some(subpass) = self.pass.subpasses.get(self.subpass) else {
            return Targets {
                colors: Vec::new(),
                depth: None,
                stencil: None,
                resolves: Vec::new(),
                area: self.area,
                layers: Vec::new(),
            };
        };
        let mut resolves = Vec::new();
        for (from, to) in subpass.colors.iter().zip(&subpass.resolves) {
            if let (Some(from), Some(to)) = (view(*from), view(*to)) {
                let (aspect, mode) = (COLOR, vk::ResolveModeFlags::AVERAGE);
                resolves.push(Resolve {
                    from,
                    to,
                    aspect,
                    mode,
                });
            }
        }
        if let Some(both) = &subpass.depth_resolve {
            for (aspect, mode) in [(DEPTH, both.depth), (STENCIL, both.stencil)] {
                if let (Some(from), Some(to), false) =
                    (view(subpass.depth), view(both.to), mode.is_empty())
                {
                    resolves.push(Resolve {
                        from,
                        to,
                        aspect,
                        mode,
                    });
                }
            }
        }
        Targets {
            colors: subpass.colors.iter().map(|number| view(*number)).collect(),
            depth: view(subpass.depth),
            stencil: view(subpass.depth),
            resolves,
            area: self.area,
            layers: layers(subpass.view_mask, self.layers),
        }
    }
}

/// Clears what the pass loads by clearing, and has the first subpass's attachments at hand.
pub fn begin(commands: vk::CommandBuffer, info: In<vk::RenderPassBeginInfo<'_>>) -> Outcome {
    let info = info.demand()?;
    let pass = STATE.objects.find(info.render_pass)?;
    let framebuffer = STATE.objects.find(info.framebuffer)?;
    let (Facts::RenderPass(pass), Facts::Framebuffer(framebuffer)) =
        (pass.facts(), framebuffer.facts())
    else {
        return Err(crate::state::UNKNOWN_HANDLE);
    };
    let views = Chain::of(info.p_next)
        .find::<vk::RenderPassAttachmentBeginInfo<'_>>()
        .filter(|_| framebuffer.views.is_empty())
        .map(|begin| {
            List::field(begin.p_attachments)
                .of(begin.attachment_count as usize)
                .to_vec()
        });
    let views = views.as_ref().unwrap_or(&framebuffer.views);
    let views: Vec<Option<Attached>> = views.iter().map(|view| attached(*view)).collect();
    let values = List::field(info.p_clear_values);
    let values = values.of(info.clear_value_count as usize);
    for ((number, aspects), (view, value)) in (0..).zip(&pass.cleared).zip(views.iter().zip(values))
    {
        if let (Some(view), Some(mask), false) = (view, pass.used_in(number), aspects.is_empty()) {
            let what = (*aspects, clear_words(clear_color_of(*value)));
            let layers = layers(mask, framebuffer.layers);
            record_clear(commands, view.clone(), info.render_area, layers, what)?;
        }
    }
    let progress = Progress {
        pass: Arc::clone(pass),
        views,
        subpass: 0,
        area: info.render_area,
        layers: framebuffer.layers,
    };
    STATE
        .command_buffers
        .find(commands)?
        .set_pass(Some(Current {
            targets: Arc::new(progress.targets()),
            pass: Some(progress),
        }));
    Ok(())
}

pub fn next(commands: vk::CommandBuffer) -> Outcome {
    let buffer = STATE.command_buffers.find(commands)?;
    let Some(current) = buffer.set_pass(None) else {
        return Ok(());
    };
    record_resolves(commands, &current.targets)?;
    if let Some(mut progress) = current.pass {
        progress.subpass += 1;
        buffer.set_pass(Some(Current {
            targets: Arc::new(progress.targets()),
            pass: Some(progress),
        }));
    }
    Ok(())
}

/// Of a render pass, or of dynamic rendering.
pub fn end(commands: vk::CommandBuffer) -> Outcome {
    let ended = STATE.command_buffers.find(commands)?.set_pass(None);
    ended.map_or(Ok(()), |current| {
        record_resolves(commands, &current.targets)
    })
}

pub fn begin_rendering(commands: vk::CommandBuffer, info: In<vk::RenderingInfo<'_>>) -> Outcome {
    let info = info.demand()?;
    let layers = layers(info.view_mask, info.layer_count);
    let resumes = info.flags.contains(vk::RenderingFlags::RESUMING);
    let suspends = info.flags.contains(vk::RenderingFlags::SUSPENDING);
    let mut resolves = Vec::new();
    let mut attach = |attachment: &vk::RenderingAttachmentInfo<'_>, aspect| {
        let Some(view) = attached(attachment.image_view) else {
            return Ok::<_, vk::Result>(None);
        };
        if !resumes && attachment.load_op == vk::AttachmentLoadOp::CLEAR {
            let what = (aspect, clear_words(clear_color_of(attachment.clear_value)));
            record_clear(
                commands,
                view.clone(),
                info.render_area,
                layers.clone(),
                what,
            )?;
        }
        let mode = attachment.resolve_mode;
        if let (Some(to), false, false) = (
            attached(attachment.resolve_image_view),
            mode.is_empty(),
            suspends,
        ) {
            let from = view.clone();
            resolves.push(Resolve {
                from,
                to,
                aspect,
                mode,
            });
        }
        Ok(Some(view))
    };
    let colors = List::field(info.p_color_attachments);
    let colors = colors.of(info.color_attachment_count as usize).iter();
    let colors = colors
        .map(|one| attach(one, COLOR))
        .collect::<Result<_, _>>()?;
    let mut one = |attachment: *const vk::RenderingAttachmentInfo<'_>, aspect| {
        let attachment = In::field(attachment);
        attachment
            .get()
            .map_or(Ok(None), |attachment| attach(attachment, aspect))
    };
    let depth = one(info.p_depth_attachment, DEPTH)?;
    let stencil = one(info.p_stencil_attachment, STENCIL)?;
    let targets = Arc::new(Targets {
        colors,
        depth,
        stencil,
        resolves,
        area: info.render_area,
        layers,
    });
    STATE
        .command_buffers
        .find(commands)?
        .set_pass(Some(Current {
            targets,
            pass: None,
        }));
    Ok(())
}

/// What vkCmdClearAttachments is asked for.
struct Wanted {
    aspects: vk::ImageAspectFlags,
    color: u32,
    words: [u32; 4],
}

impl Targets {
    fn clear(&self, on: Member, wanted: &[Wanted], rects: &[vk::ClearRect]) {
        for one in wanted {
            let color = self.colors.get(one.color as usize);
            let views = [
                (COLOR, color.and_then(Option::as_ref)),
                (DEPTH, self.depth.as_ref()),
                (STENCIL, self.stencil.as_ref()),
            ];
            for (aspect, view) in views {
                let Some(view) = view.filter(|_| one.aspects.intersects(aspect)) else {
                    continue;
                };
                for rect in rects {
                    // With several views the first layer stands for all of them.
                    let first = rect.base_array_layer;
                    let asked = first..first.saturating_add(rect.layer_count);
                    let multiview = self.layers != layers(0, self.layers.len() as u32);
                    let layers: Vec<u32> = if multiview {
                        self.layers.clone()
                    } else {
                        asked.filter(|layer| self.layers.contains(layer)).collect()
                    };
                    view.clear(on, rect.rect, &layers, aspect, one.words);
                }
            }
        }
    }
}

/// Clears rectangles of the attachments at hand: those of the render pass that this command buffer has begun, or, in a
/// secondary one, of the one in which it is executed.
pub fn clear_attachments(
    commands: vk::CommandBuffer,
    (count, attachments): (u32, List<vk::ClearAttachment>),
    (rect_count, rects): (u32, List<vk::ClearRect>),
) -> Outcome {
    let attachments = attachments.of(count as usize).iter();
    let wanted: Vec<Wanted> = attachments
        .map(|one| Wanted {
            aspects: one.aspect_mask,
            color: one.color_attachment,
            words: clear_words(clear_color_of(one.clear_value)),
        })
        .collect();
    let rects = rects.of(rect_count as usize).to_vec();
    // How wide a texel is, a secondary command buffer does not know; four bytes are the commonest.
    let bytes = |rect: &vk::ClearRect| {
        let extent = rect.rect.extent;
        u64::from(extent.width) * u64::from(extent.height) * u64::from(rect.layer_count) * 4
    };
    let takes = Takes::Fill {
        bytes: rects.iter().map(bytes).sum::<u64>() * wanted.len() as u64,
    };
    let buffer = STATE.command_buffers.find(commands)?;
    buffer.record_in_pass(takes, move |moment, targets| {
        targets.clear(moment.on, &wanted, &rects);
    });
    Ok(())
}
