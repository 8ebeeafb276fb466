//! Images hold texels: what commands write there is what commands read, under the eyes of the validation layer.

use ash::vk;

use crate::client::{Client, MESSAGES};
use crate::environment::isolated;
use crate::transfer::{Mapped, record};

pub struct Picture {
    pub image: vk::Image,
    memory: vk::DeviceMemory,
    pub info: vk::ImageCreateInfo<'static>,
    aspect: vk::ImageAspectFlags,
}

const BOTH: vk::ImageUsageFlags = vk::ImageUsageFlags::from_raw(
    vk::ImageUsageFlags::TRANSFER_SRC.as_raw() | vk::ImageUsageFlags::TRANSFER_DST.as_raw(),
);

/// A flat image that is copied from and to.
pub fn flat(format: vk::Format, width: u32, height: u32) -> vk::ImageCreateInfo<'static> {
    vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(format)
        .extent(vk::Extent3D {
            width,
            height,
            depth: 1,
        })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(BOTH)
}

impl Picture {
    pub fn new(client: &Client, info: vk::ImageCreateInfo<'static>) -> Self {
        // SAFETY: valid usage, as the layer confirms.
        unsafe {
            let image = client.device.create_image(&info, None).expect("an image");
            let needs = client.device.get_image_memory_requirements(image);
            let kind = client.device_local();
            assert_ne!(needs.memory_type_bits & 1 << kind, 0);
            let memory = client.allocate(needs.size, kind).expect("memory");
            client
                .device
                .bind_image_memory(image, memory, 0)
                .expect("binding");
            let aspect = match info.format {
                vk::Format::D32_SFLOAT => vk::ImageAspectFlags::DEPTH,
                vk::Format::D24_UNORM_S8_UINT => {
                    vk::ImageAspectFlags::DEPTH | vk::ImageAspectFlags::STENCIL
                }
                _ => vk::ImageAspectFlags::COLOR,
            };
            Self {
                image,
                memory,
                info,
                aspect,
            }
        }
    }

    /// An image that somebody else bound.
    pub fn around(image: vk::Image, info: vk::ImageCreateInfo<'static>) -> Self {
        Self {
            image,
            memory: vk::DeviceMemory::null(),
            info,
            aspect: vk::ImageAspectFlags::COLOR,
        }
    }

    pub fn layers(&self, level: u32) -> vk::ImageSubresourceLayers {
        vk::ImageSubresourceLayers {
            aspect_mask: self.aspect,
            mip_level: level,
            base_array_layer: 0,
            layer_count: self.info.array_layers,
        }
    }

    pub fn range(&self) -> vk::ImageSubresourceRange {
        vk::ImageSubresourceRange {
            aspect_mask: self.aspect,
            base_mip_level: 0,
            level_count: self.info.mip_levels,
            base_array_layer: 0,
            layer_count: self.info.array_layers,
        }
    }

    pub fn barrier(
        &self,
        client: &Client,
        commands: vk::CommandBuffer,
        from: vk::ImageLayout,
        to: vk::ImageLayout,
    ) {
        let barrier = vk::ImageMemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE)
            .old_layout(from)
            .new_layout(to)
            .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .image(self.image)
            .subresource_range(self.range());
        let transfer = vk::PipelineStageFlags::TRANSFER;
        // SAFETY: valid usage.
        unsafe {
            client.device.cmd_pipeline_barrier(
                commands,
                transfer,
                transfer,
                vk::DependencyFlags::empty(),
                &[],
                &[],
                &[barrier],
            );
        }
    }

    /// From undefined to a target.
    pub fn ready(&self, client: &Client, commands: vk::CommandBuffer) {
        let to = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
        self.barrier(client, commands, vk::ImageLayout::UNDEFINED, to);
    }

    /// From a target to a source.
    pub fn read(&self, client: &Client, commands: vk::CommandBuffer) {
        let from = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
        self.barrier(
            client,
            commands,
            from,
            vk::ImageLayout::TRANSFER_SRC_OPTIMAL,
        );
    }

    pub fn copy(&self, level: u32) -> vk::BufferImageCopy {
        vk::BufferImageCopy::default()
            .image_subresource(self.layers(level))
            .image_extent(vk::Extent3D {
                width: (self.info.extent.width >> level).max(1),
                height: (self.info.extent.height >> level).max(1),
                depth: (self.info.extent.depth >> level).max(1),
            })
    }

    pub fn destroy(self, client: &Client) {
        // SAFETY: no work is left that uses it.
        unsafe { client.device.destroy_image(self.image, None) };
        client.free(self.memory);
    }
}

/// Records, submits, waits.
pub fn run(client: &Client, commands: impl FnOnce(vk::CommandBuffer)) {
    let (pool, buffer) = record(client, commands);
    let submits = [vk::SubmitInfo::default().command_buffers(std::slice::from_ref(&buffer))];
    // SAFETY: valid usage; idle before the pool goes.
    unsafe {
        client
            .device
            .queue_submit(client.queue, &submits, vk::Fence::null())
            .expect("submit");
        client.device.queue_wait_idle(client.queue).expect("idle");
        client.device.destroy_command_pool(pool, None);
    }
}

pub fn silence(client: Client) {
    client.destroy();
    assert_eq!(*MESSAGES.lock().unwrap(), Vec::<String>::new());
}

/// Bytes that repeat nowhere near.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

const SRC: vk::ImageLayout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
const DST: vk::ImageLayout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;

/// What the bytes of `from` are after a way through `image`.
fn through(client: &Client, image: &Picture, bytes: &[u8]) -> Vec<u8> {
    let (from, to) = (
        Mapped::with(client, bytes),
        Mapped::new(client, bytes.len() as u64),
    );
    run(client, |commands| {
        image.ready(client, commands);
        // SAFETY: valid usage.
        unsafe {
            let region = [image.copy(0)];
            let device = &client.device;
            device.cmd_copy_buffer_to_image(commands, from.buffer, image.image, DST, &region);
            image.read(client, commands);
            device.cmd_copy_image_to_buffer(commands, image.image, SRC, to.buffer, &region);
        }
    });
    let read = to.bytes(client);
    from.destroy(client);
    to.destroy(client);
    read
}

#[test]
fn texels_come_back_as_they_went() {
    isolated("picture::texels_come_back_as_they_went", "h200", || {
        let client = Client::validated();
        for (format, width, height, layers, bytes) in [
            (vk::Format::R8_UNORM, 37, 19, 1, 37 * 19),
            (vk::Format::R8G8B8A8_UNORM, 100, 70, 3, 100 * 70 * 4 * 3),
            (vk::Format::R32G32B32A32_SFLOAT, 65, 3, 2, 65 * 3 * 16 * 2),
            (vk::Format::BC1_RGB_UNORM_BLOCK, 40, 24, 1, 10 * 6 * 8),
            (vk::Format::D32_SFLOAT, 33, 33, 1, 33 * 33 * 4),
        ] {
            let image = Picture::new(&client, flat(format, width, height).array_layers(layers));
            let bytes = pattern(bytes);
            assert_eq!(through(&client, &image, &bytes), bytes, "{format:?}");
            image.destroy(&client);
        }
        let volume = flat(vk::Format::R16_UINT, 20, 10)
            .image_type(vk::ImageType::TYPE_3D)
            .extent(vk::Extent3D {
                width: 20,
                height: 10,
                depth: 7,
            });
        let volume = Picture::new(&client, volume);
        let bytes = pattern(20 * 10 * 7 * 2);
        assert_eq!(through(&client, &volume, &bytes), bytes);
        volume.destroy(&client);
        silence(client);
    });
}

#[test]
fn a_part_of_one_image_is_copied_into_another() {
    isolated(
        "picture::a_part_of_one_image_is_copied_into_another",
        "h200",
        || {
            let client = Client::validated();
            let info = flat(vk::Format::R8G8_UNORM, 64, 64);
            let (from, to) = (Picture::new(&client, info), Picture::new(&client, info));
            let bytes = pattern(64 * 64 * 2);
            let (source, target) = (
                Mapped::with(&client, &bytes),
                Mapped::new(&client, 64 * 64 * 2),
            );
            let part = vk::ImageCopy::default()
                .src_subresource(from.layers(0))
                .src_offset(vk::Offset3D { x: 8, y: 4, z: 0 })
                .dst_subresource(to.layers(0))
                .dst_offset(vk::Offset3D { x: 40, y: 50, z: 0 })
                .extent(vk::Extent3D {
                    width: 20,
                    height: 10,
                    depth: 1,
                });
            run(&client, |commands| {
                from.ready(&client, commands);
                to.ready(&client, commands);
                // SAFETY: valid usage.
                unsafe {
                    let device = &client.device;
                    let whole = [from.copy(0)];
                    device.cmd_copy_buffer_to_image(
                        commands,
                        source.buffer,
                        from.image,
                        DST,
                        &whole,
                    );
                    let black = vk::ClearColorValue { float32: [0.0; 4] };
                    device.cmd_clear_color_image(commands, to.image, DST, &black, &[to.range()]);
                    from.read(&client, commands);
                    to.barrier(&client, commands, DST, DST);
                    device.cmd_copy_image(commands, from.image, SRC, to.image, DST, &[part]);
                    to.read(&client, commands);
                    device.cmd_copy_image_to_buffer(commands, to.image, SRC, target.buffer, &whole);
                }
            });
            let read = target.bytes(&client);
            let mut expected = vec![0; bytes.len()];
            for y in 0..10 {
                let (source, target) = (((4 + y) * 64 + 8) * 2, ((50 + y) * 64 + 40) * 2);
                expected[target..target + 40].copy_from_slice(&bytes[source..source + 40]);
            }
            assert_eq!(read, expected);
            from.destroy(&client);
            to.destroy(&client);
            source.destroy(&client);
            target.destroy(&client);
            silence(client);
        },
    );
}

/// A clear, a shrinking blit with linear filtering, and a mirrored one.
#[test]
fn blits_convert_scale_and_mirror() {
    isolated("picture::blits_convert_scale_and_mirror", "h200", || {
        let client = Client::validated();
        let from = Picture::new(&client, flat(vk::Format::R8G8B8A8_UNORM, 4, 2));
        let to = Picture::new(&client, flat(vk::Format::B8G8R8A8_UNORM, 2, 1));
        let mirrored = Picture::new(&client, flat(vk::Format::R8G8B8A8_UNORM, 4, 2));
        let texels: Vec<u8> = (0..8_u8)
            .flat_map(|texel| [texel * 10, 0, 100, 255])
            .collect();
        let source = Mapped::with(&client, &texels);
        let (small, turned) = (Mapped::new(&client, 8), Mapped::new(&client, 32));
        let corner = |x, y| vk::Offset3D { x, y, z: 1 };
        let origin = vk::Offset3D::default();
        let shrink = vk::ImageBlit::default()
            .src_subresource(from.layers(0))
            .src_offsets([origin, corner(4, 2)])
            .dst_subresource(to.layers(0))
            .dst_offsets([origin, corner(2, 1)]);
        let mirror = vk::ImageBlit::default()
            .src_subresource(from.layers(0))
            .src_offsets([origin, corner(4, 2)])
            .dst_subresource(mirrored.layers(0))
            .dst_offsets([vk::Offset3D { x: 4, y: 0, z: 0 }, corner(0, 2)]);
        run(&client, |commands| {
            from.ready(&client, commands);
            to.ready(&client, commands);
            mirrored.ready(&client, commands);
            // SAFETY: valid usage.
            unsafe {
                let device = &client.device;
                let all = [from.copy(0)];
                device.cmd_copy_buffer_to_image(commands, source.buffer, from.image, DST, &all);
                from.read(&client, commands);
                let (linear, nearest) = (vk::Filter::LINEAR, vk::Filter::NEAREST);
                device.cmd_blit_image(commands, from.image, SRC, to.image, DST, &[shrink], linear);
                device.cmd_blit_image(
                    commands,
                    from.image,
                    SRC,
                    mirrored.image,
                    DST,
                    &[mirror],
                    nearest,
                );
                to.read(&client, commands);
                mirrored.read(&client, commands);
                let part = [to.copy(0)];
                device.cmd_copy_image_to_buffer(commands, to.image, SRC, small.buffer, &part);
                device.cmd_copy_image_to_buffer(commands, mirrored.image, SRC, turned.buffer, &all);
            }
        });
        assert_eq!(small.bytes(&client), [100, 0, 25, 255, 100, 0, 45, 255]);
        let reds: Vec<u8> = turned
            .bytes(&client)
            .chunks(4)
            .map(|texel| texel[0])
            .collect();
        assert_eq!(reds, [30, 20, 10, 0, 70, 60, 50, 40]);
        for picture in [from, to, mirrored] {
            picture.destroy(&client);
        }
        for mapped in [source, small, turned] {
            mapped.destroy(&client);
        }
        silence(client);
    });
}

/// Depth and stencil of one image are cleared together and copied apart.
#[test]
fn aspects_are_copied_apart_and_samples_resolved() {
    isolated(
        "picture::aspects_are_copied_apart_and_samples_resolved",
        "h200",
        || {
            let client = Client::validated();
            let both = Picture::new(&client, flat(vk::Format::D24_UNORM_S8_UINT, 3, 2));
            let usage = BOTH | vk::ImageUsageFlags::COLOR_ATTACHMENT;
            let sampled = flat(vk::Format::R8G8B8A8_UNORM, 3, 2)
                .samples(vk::SampleCountFlags::TYPE_4)
                .usage(usage);
            let sampled = Picture::new(&client, sampled);
            let resolved =
                Picture::new(&client, flat(vk::Format::R8G8B8A8_UNORM, 3, 2).usage(usage));
            let (depth, stencil, color) = (
                Mapped::new(&client, 24),
                Mapped::new(&client, 8),
                Mapped::new(&client, 24),
            );
            let value = vk::ClearDepthStencilValue {
                depth: 1.0,
                stencil: 77,
            };
            let red = vk::ClearColorValue {
                float32: [1.0, 0.0, 0.2, 1.0],
            };
            let part = |aspect| {
                let mut copy = both.copy(0);
                copy.image_subresource.aspect_mask = aspect;
                [copy]
            };
            let resolve = vk::ImageResolve::default()
                .src_subresource(sampled.layers(0))
                .dst_subresource(resolved.layers(0))
                .extent(sampled.info.extent);
            run(&client, |commands| {
                for picture in [&both, &sampled, &resolved] {
                    picture.ready(&client, commands);
                }
                // SAFETY: valid usage.
                unsafe {
                    let device = &client.device;
                    let ranges = [both.range()];
                    device
                        .cmd_clear_depth_stencil_image(commands, both.image, DST, &value, &ranges);
                    let ranges = [sampled.range()];
                    device.cmd_clear_color_image(commands, sampled.image, DST, &red, &ranges);
                    both.read(&client, commands);
                    sampled.read(&client, commands);
                    let first = part(vk::ImageAspectFlags::DEPTH);
                    device.cmd_copy_image_to_buffer(
                        commands,
                        both.image,
                        SRC,
                        depth.buffer,
                        &first,
                    );
                    let second = part(vk::ImageAspectFlags::STENCIL);
                    device.cmd_copy_image_to_buffer(
                        commands,
                        both.image,
                        SRC,
                        stencil.buffer,
                        &second,
                    );
                    device.cmd_resolve_image(
                        commands,
                        sampled.image,
                        SRC,
                        resolved.image,
                        DST,
                        &[resolve],
                    );
                    resolved.read(&client, commands);
                    let all = [resolved.copy(0)];
                    device.cmd_copy_image_to_buffer(
                        commands,
                        resolved.image,
                        SRC,
                        color.buffer,
                        &all,
                    );
                }
            });
            for word in depth.bytes(&client).chunks(4) {
                assert_eq!(word[..3], [255, 255, 255]);
            }
            assert_eq!(stencil.bytes(&client)[..6], [77; 6]);
            for texel in color.bytes(&client).chunks(4) {
                assert_eq!(texel, [255, 0, 51, 255]);
            }
            for picture in [both, sampled, resolved] {
                picture.destroy(&client);
            }
            for mapped in [depth, stencil, color] {
                mapped.destroy(&client);
            }
            silence(client);
        },
    );
}
