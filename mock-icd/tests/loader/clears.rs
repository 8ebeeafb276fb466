//! What a render pass, or dynamic rendering, clears and resolves is in its attachments, under the eyes of the validation layer.

use ash::vk;

use crate::client::Client;
use crate::environment::isolated;
use crate::picture::{Picture, flat, run, silence};
use crate::transfer::Mapped;

const COLOR: vk::ImageUsageFlags = vk::ImageUsageFlags::COLOR_ATTACHMENT;
const DEPTH: vk::ImageUsageFlags = vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT;
const SRC: vk::ImageLayout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
const WIDTH: u32 = 8;
const HEIGHT: u32 = 4;
/// The middle of the pictures: columns 2 to 5 of rows 1 and 2.
const MIDDLE: vk::Rect2D = vk::Rect2D {
    offset: vk::Offset2D { x: 2, y: 1 },
    extent: vk::Extent2D {
        width: 4,
        height: 2,
    },
};
const RED: vk::ClearValue = vk::ClearValue {
    color: vk::ClearColorValue {
        float32: [1.0, 0.0, 0.2, 1.0],
    },
};
const RED_BYTES: [u8; 4] = [255, 0, 51, 255];
const FAR: vk::ClearValue = vk::ClearValue {
    depth_stencil: vk::ClearDepthStencilValue {
        depth: 1.0,
        stencil: 77,
    },
};
const WHOLE: vk::Rect2D = vk::Rect2D {
    offset: vk::Offset2D { x: 0, y: 0 },
    extent: vk::Extent2D {
        width: WIDTH,
        height: HEIGHT,
    },
};

fn picture(
    client: &Client,
    format: vk::Format,
    usage: vk::ImageUsageFlags,
    samples: u32,
) -> Picture {
    let info = flat(format, WIDTH, HEIGHT);
    let samples = vk::SampleCountFlags::from_raw(samples);
    Picture::new(client, info.usage(info.usage | usage).samples(samples))
}

fn view(client: &Client, picture: &Picture) -> vk::ImageView {
    let info = vk::ImageViewCreateInfo::default()
        .image(picture.image)
        .view_type(vk::ImageViewType::TYPE_2D)
        .format(picture.info.format)
        .subresource_range(picture.range());
    // SAFETY: valid usage.
    unsafe { client.device.create_image_view(&info, None) }.expect("a view")
}

/// An attachment that is cleared where it is used, and left for transfers from it.
fn attachment(picture: &Picture, load: vk::AttachmentLoadOp) -> vk::AttachmentDescription {
    vk::AttachmentDescription::default()
        .format(picture.info.format)
        .samples(picture.info.samples)
        .load_op(load)
        .stencil_load_op(load)
        .store_op(vk::AttachmentStoreOp::STORE)
        .stencil_store_op(vk::AttachmentStoreOp::STORE)
        .initial_layout(vk::ImageLayout::UNDEFINED)
        .final_layout(SRC)
}

fn reference(attachment: u32, layout: vk::ImageLayout) -> vk::AttachmentReference {
    vk::AttachmentReference { attachment, layout }
}

/// A pass of one subpass with its framebuffer.
struct Pass {
    pass: vk::RenderPass,
    framebuffer: vk::Framebuffer,
    views: Vec<vk::ImageView>,
}

impl Pass {
    fn new(
        client: &Client,
        pictures: &[&Picture],
        attachments: &[vk::AttachmentDescription],
        subpass: vk::SubpassDescription<'_>,
    ) -> Self {
        let subpasses = [subpass];
        // What follows reads by transfers.
        let dependencies = [vk::SubpassDependency::default()
            .src_subpass(0)
            .dst_subpass(vk::SUBPASS_EXTERNAL)
            .src_stage_mask(
                vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT
                    | vk::PipelineStageFlags::LATE_FRAGMENT_TESTS,
            )
            .src_access_mask(
                vk::AccessFlags::COLOR_ATTACHMENT_WRITE
                    | vk::AccessFlags::DEPTH_STENCIL_ATTACHMENT_WRITE,
            )
            .dst_stage_mask(vk::PipelineStageFlags::TRANSFER)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ)];
        let info = vk::RenderPassCreateInfo::default()
            .attachments(attachments)
            .subpasses(&subpasses)
            .dependencies(&dependencies);
        let views: Vec<_> = pictures
            .iter()
            .map(|picture| view(client, picture))
            .collect();
        // SAFETY: valid usage.
        unsafe {
            let pass = client
                .device
                .create_render_pass(&info, None)
                .expect("a pass");
            let info = vk::FramebufferCreateInfo::default()
                .render_pass(pass)
                .attachments(&views)
                .width(WIDTH)
                .height(HEIGHT)
                .layers(1);
            let framebuffer = client.device.create_framebuffer(&info, None);
            Self {
                pass,
                framebuffer: framebuffer.expect("a framebuffer"),
                views,
            }
        }
    }

    fn begin<'a>(
        &self,
        area: vk::Rect2D,
        values: &'a [vk::ClearValue],
    ) -> vk::RenderPassBeginInfo<'a> {
        vk::RenderPassBeginInfo::default()
            .render_pass(self.pass)
            .framebuffer(self.framebuffer)
            .render_area(area)
            .clear_values(values)
    }

    fn destroy(self, client: &Client) {
        // SAFETY: no work is left that uses them.
        unsafe {
            client.device.destroy_framebuffer(self.framebuffer, None);
            client.device.destroy_render_pass(self.pass, None);
            self.views
                .iter()
                .for_each(|view| client.device.destroy_image_view(*view, None));
        }
    }
}

/// What a picture holds that a pass left for transfers: four bytes a texel, or one of stencil.
fn bytes(client: &Client, picture: &Picture, aspect: vk::ImageAspectFlags) -> Vec<u8> {
    let size = if aspect == vk::ImageAspectFlags::STENCIL {
        1
    } else {
        4
    };
    let to = Mapped::new(client, u64::from(WIDTH * HEIGHT * size));
    let mut copy = picture.copy(0);
    copy.image_subresource.aspect_mask = aspect;
    run(client, |commands| {
        // SAFETY: valid usage.
        unsafe {
            client.device.cmd_copy_image_to_buffer(
                commands,
                picture.image,
                SRC,
                to.buffer,
                &[copy],
            );
        }
    });
    let read = to.bytes(client);
    to.destroy(client);
    read
}

fn colors(client: &Client, picture: &Picture) -> Vec<[u8; 4]> {
    let bytes = bytes(client, picture, vk::ImageAspectFlags::COLOR);
    bytes
        .chunks(4)
        .map(|texel| [texel[0], texel[1], texel[2], texel[3]])
        .collect()
}

/// `inside` in the middle of a picture, `outside` around.
fn framed<T: Copy>(inside: T, outside: T) -> Vec<T> {
    let texels = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
    texels
        .map(|(x, y)| match (2..6).contains(&x) && (1..3).contains(&y) {
            true => inside,
            false => outside,
        })
        .collect()
}

#[test]
fn a_render_pass_clears_what_it_loads_by_clearing() {
    isolated(
        "clears::a_render_pass_clears_what_it_loads_by_clearing",
        "h200",
        || {
            let client = Client::validated();
            let color = picture(&client, vk::Format::R8G8B8A8_UNORM, COLOR, 1);
            let depth = picture(&client, vk::Format::D24_UNORM_S8_UINT, DEPTH, 1);
            let attachments =
                [&color, &depth].map(|picture| attachment(picture, vk::AttachmentLoadOp::CLEAR));
            let first = [reference(0, vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL)];
            let second = reference(1, vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL);
            let subpass = vk::SubpassDescription::default()
                .color_attachments(&first)
                .depth_stencil_attachment(&second);
            let pass = Pass::new(&client, &[&color, &depth], &attachments, subpass);
            let values = [RED, FAR];
            run(&client, |commands| {
                let begin = pass.begin(MIDDLE, &values);
                // SAFETY: valid usage.
                unsafe {
                    client.device.cmd_begin_render_pass(
                        commands,
                        &begin,
                        vk::SubpassContents::INLINE,
                    );
                    client.device.cmd_end_render_pass(commands);
                }
            });
            assert_eq!(colors(&client, &color), framed(RED_BYTES, [0; 4]));
            let depths = bytes(&client, &depth, vk::ImageAspectFlags::DEPTH);
            let depths: Vec<_> = depths
                .chunks(4)
                .map(|word| [word[0], word[1], word[2]])
                .collect();
            assert_eq!(depths, framed([255; 3], [0; 3]));
            assert_eq!(
                bytes(&client, &depth, vk::ImageAspectFlags::STENCIL),
                framed(77, 0)
            );
            pass.destroy(&client);
            color.destroy(&client);
            depth.destroy(&client);
            silence(client);
        },
    );
}

/// vkCmdClearAttachments, by the command buffer that began the pass and by one that is executed in it; the picture of samples is
/// resolved at the pass's end.
#[test]
fn attachments_are_cleared_within_a_pass_and_resolved_at_its_end() {
    isolated(
        "clears::attachments_are_cleared_within_a_pass_and_resolved_at_its_end",
        "h200",
        || {
            let client = Client::validated();
            let sampled = picture(&client, vk::Format::R8G8B8A8_UNORM, COLOR, 4);
            let resolved = picture(&client, vk::Format::R8G8B8A8_UNORM, COLOR, 1);
            let attachments = [
                attachment(&sampled, vk::AttachmentLoadOp::CLEAR),
                attachment(&resolved, vk::AttachmentLoadOp::DONT_CARE),
            ];
            let first = [reference(0, vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL)];
            let second = [reference(1, vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL)];
            let subpass = vk::SubpassDescription::default()
                .color_attachments(&first)
                .resolve_attachments(&second);
            let pass = Pass::new(&client, &[&sampled, &resolved], &attachments, subpass);
            let black = vk::ClearValue {
                color: vk::ClearColorValue {
                    float32: [0.0, 0.0, 0.0, 1.0],
                },
            };
            let what = [vk::ClearAttachment {
                aspect_mask: vk::ImageAspectFlags::COLOR,
                color_attachment: 0,
                clear_value: RED,
            }];
            let rect = [vk::ClearRect {
                rect: MIDDLE,
                base_array_layer: 0,
                layer_count: 1,
            }];
            let pool = vk::CommandPoolCreateInfo::default().queue_family_index(0);
            // SAFETY: valid usage.
            let (pool, secondary) = unsafe {
                let pool = client
                    .device
                    .create_command_pool(&pool, None)
                    .expect("a pool");
                let info = vk::CommandBufferAllocateInfo::default()
                    .command_pool(pool)
                    .level(vk::CommandBufferLevel::SECONDARY)
                    .command_buffer_count(1);
                (
                    pool,
                    client
                        .device
                        .allocate_command_buffers(&info)
                        .expect("a command buffer")[0],
                )
            };
            for contents in [
                vk::SubpassContents::INLINE,
                vk::SubpassContents::SECONDARY_COMMAND_BUFFERS,
            ] {
                run(&client, |commands| {
                    let values = [black];
                    let begin = pass.begin(WHOLE, &values);
                    // SAFETY: valid usage.
                    unsafe {
                        client
                            .device
                            .cmd_begin_render_pass(commands, &begin, contents);
                        if contents == vk::SubpassContents::INLINE {
                            client.device.cmd_clear_attachments(commands, &what, &rect);
                        } else {
                            let inherited =
                                vk::CommandBufferInheritanceInfo::default().render_pass(pass.pass);
                            let begin = vk::CommandBufferBeginInfo::default()
                                .flags(vk::CommandBufferUsageFlags::RENDER_PASS_CONTINUE)
                                .inheritance_info(&inherited);
                            client
                                .device
                                .begin_command_buffer(secondary, &begin)
                                .expect("begin");
                            client.device.cmd_clear_attachments(secondary, &what, &rect);
                            client.device.end_command_buffer(secondary).expect("end");
                            client.device.cmd_execute_commands(commands, &[secondary]);
                        }
                        client.device.cmd_end_render_pass(commands);
                    }
                });
                assert_eq!(
                    colors(&client, &resolved),
                    framed(RED_BYTES, [0, 0, 0, 255]),
                    "{contents:?}"
                );
                // Otherwise the second time would show the first one's picture.
                run(&client, |commands| {
                    let to = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
                    resolved.barrier(&client, commands, vk::ImageLayout::UNDEFINED, to);
                    let gray = vk::ClearColorValue { float32: [0.5; 4] };
                    // SAFETY: valid usage.
                    unsafe {
                        client.device.cmd_clear_color_image(
                            commands,
                            resolved.image,
                            to,
                            &gray,
                            &[resolved.range()],
                        );
                    }
                });
            }
            // SAFETY: no work is left.
            unsafe { client.device.destroy_command_pool(pool, None) };
            pass.destroy(&client);
            sampled.destroy(&client);
            resolved.destroy(&client);
            silence(client);
        },
    );
}

/// Dynamic rendering clears what it loads by clearing and keeps what it loads.
#[test]
fn dynamic_rendering_clears_what_it_loads_by_clearing() {
    isolated(
        "clears::dynamic_rendering_clears_what_it_loads_by_clearing",
        "h200",
        || {
            let client = Client::validated();
            let color = picture(&client, vk::Format::R8G8B8A8_UNORM, COLOR, 1);
            let view = view(&client, &color);
            let attached = vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL;
            let attachment = |load, clear_value| {
                [vk::RenderingAttachmentInfo::default()
                    .image_view(view)
                    .image_layout(attached)
                    .load_op(load)
                    .store_op(vk::AttachmentStoreOp::STORE)
                    .clear_value(clear_value)]
            };
            let blue = vk::ClearValue {
                color: vk::ClearColorValue {
                    float32: [0.0, 0.0, 1.0, 1.0],
                },
            };
            let render = |commands, attachments: &[vk::RenderingAttachmentInfo<'_>], area| {
                let info = vk::RenderingInfo::default()
                    .render_area(area)
                    .layer_count(1)
                    .color_attachments(attachments);
                // SAFETY: valid usage.
                unsafe {
                    client.device.cmd_begin_rendering(commands, &info);
                    client.device.cmd_end_rendering(commands);
                }
            };
            let barrier = |commands, from, to| {
                let barrier = [vk::ImageMemoryBarrier2::default()
                    .src_stage_mask(vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT)
                    .src_access_mask(vk::AccessFlags2::COLOR_ATTACHMENT_WRITE)
                    .dst_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
                    .dst_access_mask(vk::AccessFlags2::MEMORY_READ | vk::AccessFlags2::MEMORY_WRITE)
                    .old_layout(from)
                    .new_layout(to)
                    .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .image(color.image)
                    .subresource_range(color.range())];
                let info = vk::DependencyInfo::default().image_memory_barriers(&barrier);
                // SAFETY: valid usage.
                unsafe { client.device.cmd_pipeline_barrier2(commands, &info) };
            };
            run(&client, |commands| {
                barrier(commands, vk::ImageLayout::UNDEFINED, attached);
                render(
                    commands,
                    &attachment(vk::AttachmentLoadOp::CLEAR, RED),
                    WHOLE,
                );
                barrier(commands, attached, attached);
                render(
                    commands,
                    &attachment(vk::AttachmentLoadOp::CLEAR, blue),
                    MIDDLE,
                );
                barrier(commands, attached, attached);
                render(
                    commands,
                    &attachment(vk::AttachmentLoadOp::LOAD, RED),
                    WHOLE,
                );
                barrier(commands, attached, SRC);
            });
            assert_eq!(colors(&client, &color), framed([0, 0, 255, 255], RED_BYTES));
            // SAFETY: no work is left that uses it.
            unsafe { client.device.destroy_image_view(view, None) };
            color.destroy(&client);
            silence(client);
        },
    );
}
