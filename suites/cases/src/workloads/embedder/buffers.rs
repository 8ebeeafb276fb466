//! Buffers that are owned, wrapped and cropped, and where their bytes lie.

use embedder::kernels::{IDLE, REVERSE, groups};
use embedder::{Buffer, Error, Launch, Ownership, Usage};
use harness::{Failure, Session, cases, ensure, ensure_eq, fail};

use super::{SMALL, adopted, affine, bytes, embedded, one_dispatch, owned};
use crate::ffi::vulkan::embedding::{Application, Recorded, Seen, no_buffer};

/// A picture in NV12: so many bytes of luma, half as many of chroma behind them.
const LUMA: usize = 1024;
const CHROMA: usize = 512;

/// Words that differ from one another, as a picture's.
fn picture(words: usize, from: u32) -> Vec<u32> {
    (0..words as u32).map(|word| from + word * 7).collect()
}

/// Both planes of one VkBuffer, wrapped at two offsets, go through a kernel into a second VkBuffer's planes.
pub(super) fn two_planes(session: &Session, application: &Application) -> Result<(), Failure> {
    let runtime = &application.runtime;
    let (context, allocator) = adopted(application)?;
    let (source, result) = (
        application.buffer((LUMA + CHROMA) as u64)?,
        application.buffer((LUMA + CHROMA) as u64)?,
    );
    let (luma, chroma) = (picture(LUMA / 4, 1), picture(CHROMA / 4, 1 << 20));
    source.write(0, &bytes(&luma));
    source.write(LUMA, &bytes(&chroma));
    result.write(0, &[0; LUMA + CHROMA]);
    let planes = [(0, LUMA), (LUMA, CHROMA)];
    for (offset, length) in planes {
        let (mut from, mut to) = (Buffer::new(length as u64), Buffer::new(length as u64));
        runtime.wrap_buffer(context, &mut from, source.foreign(), offset as u64)?;
        runtime.wrap_buffer(context, &mut to, result.foreign(), offset as u64)?;
        ensure_eq!(
            runtime.get_buffer(&from)?,
            (source.raw(), offset as u64),
            "the plane's place"
        );
        affine(application, context, [&from, &to], [3, 5])?;
        runtime.detach(&mut from)?;
        runtime.detach(&mut to)?;
    }
    let seen = Seen::now();
    let bound: Vec<_> = seen
        .bound
        .iter()
        .map(|bound| (bound.buffer, bound.offset, bound.range))
        .collect();
    let promised: Vec<_> = planes
        .iter()
        .flat_map(|&(offset, length)| {
            [source.raw(), result.raw()].map(|buffer| (buffer, offset as u64, length as u64))
        })
        .collect();
    ensure_eq!(bound, promised, "the planes in descriptors");
    if application.computes(session.is_real()) {
        let computed =
            |words: &[u32]| bytes(&words.iter().map(|word| word * 3 + 5).collect::<Vec<_>>());
        ensure_eq!(result.read(0, LUMA), computed(&luma), "luma");
        ensure_eq!(result.read(LUMA, CHROMA), computed(&chroma), "chroma");
    }
    Ok(runtime.release_memory_allocator(context, allocator)?)
}

/// A crop of a crop of a wrapped buffer, all at odd offsets: copies read and write its bytes and no other.
pub(super) fn odd_copies(application: &Application) -> Result<(), Failure> {
    const SIZE: usize = 1000;
    let runtime = &application.runtime;
    let (context, allocator) = adopted(application)?;
    let own = application.buffer(SIZE as u64)?;
    let before: Vec<u8> = (0..SIZE).map(|at| (at * 13 % 251) as u8).collect();
    own.write(0, &before);
    let mut wrapped = Buffer::new(SIZE as u64 - 3);
    runtime.wrap_buffer(context, &mut wrapped, own.foreign(), 3)?;
    let mut crop = runtime.crop(&wrapped, 101, 501)?;
    let mut inner = runtime.crop(&crop, 7, 33)?;
    let start = 3 + 101 + 7;
    ensure_eq!(
        runtime.get_buffer(&inner)?,
        (own.raw(), start as u64),
        "where the inner crop lies"
    );
    ensure_eq!(
        runtime.owner(&inner)?,
        runtime.owner(&wrapped)?,
        "whose bytes the inner crop's are"
    );
    ensure_eq!(
        runtime.ownership(&inner)?,
        Ownership::CropAlias,
        "what the inner crop is"
    );
    let mut staging = Buffer::new(33);
    runtime.allocate(context, &mut staging, Usage::HostVisible)?;
    runtime.copy(&inner, &staging)?;
    let mut read = [0; 33];
    runtime.read(&staging, 0, &mut read)?;
    ensure_eq!(
        read[..],
        before[start..start + 33],
        "what is read by the inner crop"
    );
    runtime.write(&staging, 0, &[0xee; 33])?;
    runtime.copy(&staging, &inner)?;
    let mut promised = before;
    promised[start..start + 33].fill(0xee);
    ensure!(
        own.read(0, SIZE) == promised,
        "more or less than the inner crop was written"
    );
    let overlapping = runtime.copy(&inner, &crop);
    ensure!(
        matches!(overlapping, Err(Error::OutOfRange { .. })),
        "a copy between sizes answered {overlapping:?}"
    );
    for buffer in [&mut inner, &mut crop, &mut wrapped, &mut staging] {
        runtime.free(buffer)?;
    }
    Ok(runtime.release_memory_allocator(context, allocator)?)
}

/// A crop of a crop at a word where no descriptor may begin: it is bound from before, and the kernel leaves out as many words.
pub(super) fn odd_dispatch(session: &Session, application: &Application) -> Result<(), Failure> {
    const WORDS: usize = 300;
    let runtime = &application.runtime;
    let (context, allocator) = adopted(application)?;
    let (source, result) = (
        application.buffer(4 * WORDS as u64)?,
        application.buffer(4 * WORDS as u64)?,
    );
    let words = picture(WORDS, 9);
    source.write(0, &bytes(&words));
    result.write(0, &bytes(&vec![1; WORDS]));
    let (mut from, mut to) = (
        Buffer::new(4 * WORDS as u64 - 4),
        Buffer::new(4 * WORDS as u64 - 12),
    );
    runtime.wrap_buffer(context, &mut from, source.foreign(), 4)?;
    runtime.wrap_buffer(context, &mut to, result.foreign(), 12)?;
    // Words 1 + 20 + 5 of the source, 3 + 30 of the result; 77 of them.
    let (mut crop, mut target) = (runtime.crop(&from, 80, 1000)?, runtime.crop(&to, 120, 308)?);
    let mut inner = runtime.crop(&crop, 20, 308)?;
    let launch = Launch {
        kernel: &REVERSE,
        buffers: &[&inner, &target],
        scalars: &[77],
        groups: groups(77),
    };
    runtime.dispatch(context, &launch)?;
    let seen = Seen::now();
    let [Some(first), Some(second)] = [seen.bound.first(), seen.bound.get(1)] else {
        fail!("{} descriptors of two", seen.bound.len());
    };
    let Some(constants) = seen.constants.first() else {
        fail!("a dispatch without constants");
    };
    let starts = [
        first.offset + 4 * u64::from(constants[0]),
        second.offset + 4 * u64::from(constants[1]),
    ];
    ensure_eq!(
        starts,
        [4 * 26, 4 * 33],
        "where the kernel begins to read and to write"
    );
    ensure_eq!(
        [first.offset + first.range, second.offset + second.range],
        [4 * (26 + 77), 4 * (33 + 77)],
        "where descriptors end"
    );
    ensure_eq!(
        (first.buffer, second.buffer, constants[2]),
        (source.raw(), result.raw(), 77),
        "what is bound, and the count"
    );
    if application.computes(session.is_real()) {
        let mut promised = vec![1; WORDS];
        promised[33..33 + 77]
            .iter_mut()
            .rev()
            .zip(&words[26..])
            .for_each(|(to, from)| *to = *from);
        ensure!(
            result.read(0, 4 * WORDS) == bytes(&promised),
            "more or less than the crop was written, or in another order"
        );
    }
    for buffer in [&mut inner, &mut crop, &mut from, &mut target, &mut to] {
        runtime.free(buffer)?;
    }
    Ok(runtime.release_memory_allocator(context, allocator)?)
}

cases! {
    /// Two planes of one VkBuffer (NV12), wrapped at two offsets, are each read and written where they lie.
    two_planes_of_a_buffer_are_two_regions {
        entry_points: ["vkUpdateDescriptorSets", "vkCmdDispatch"],
    } (session) {
        embedded(session, SMALL, |application| two_planes(session, application))
    }

    /// A crop of a crop of a wrapped buffer at odd offsets is copied from and to, byte for byte; it resolves to what was wrapped.
    a_crop_of_a_crop_is_copied_byte_for_byte {
        entry_points: ["vkCmdCopyBuffer"],
    } (session) {
        embedded(session, SMALL, |application| odd_copies(application))
    }

    /// A crop of a crop that begins where no descriptor may is bound from before, with the words between as a constant.
    a_crop_of_a_crop_is_dispatched_where_it_begins {
        entry_points: ["vkUpdateDescriptorSets", "vkCmdPushConstants", "vkCmdDispatch"],
    } (session) {
        embedded(session, SMALL, |application| odd_dispatch(session, application))
    }

    /// A crop of memory that the runtime owns and the host sees is written and read by its mapping, within it and nowhere else; a crop of a crop too.
    a_crop_of_owned_memory_is_mapped {
        defects: ["W3"], entry_points: ["vkMapMemory"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let (mut before, mut whole) = (owned(runtime, context, 100)?, owned(runtime, context, 1000)?);
            runtime.write(&before, 0, &[7; 100])?;
            runtime.write(&whole, 0, &[1; 1000])?;
            let mut crop = runtime.crop(&whole, 101, 800)?;
            let mut inner = runtime.crop(&crop, 50, 11)?;
            runtime.write(&crop, 0, &[2; 800])?;
            runtime.write(&inner, 1, &[3; 10])?;
            let mut promised = [1; 1000];
            promised[101..901].fill(2);
            promised[152..162].fill(3);
            let mut seen = [0; 1000];
            runtime.read(&whole, 0, &mut seen)?;
            ensure_eq!(seen, promised, "the whole buffer");
            let mut part = [0; 11];
            runtime.read(&inner, 0, &mut part)?;
            ensure_eq!(part, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3], "the crop of the crop");
            for (at, length) in [(2, 10), (11, 1), (u64::MAX, 1)] {
                let beyond = runtime.read(&inner, at, &mut vec![0; length]);
                ensure!(matches!(beyond, Err(Error::OutOfRange { within: 11, .. })), "{length} bytes at {at} of a crop of 11 answered {beyond:?}");
            }
            let mut beside = [0; 100];
            runtime.read(&before, 0, &mut beside)?;
            ensure_eq!(beside, [7; 100], "the buffer beside it");
            let mut local = Buffer::new(128);
            runtime.allocate(context, &mut local, Usage::DeviceLocal)?;
            let mut unseen = runtime.crop(&local, 4, 4)?;
            let answer = runtime.write(&unseen, 0, &[1]);
            ensure!(matches!(answer, Err(Error::NotVisible { region }) if Some(region) == unseen.region()), "a crop of device-local memory answered {answer:?}");
            for buffer in [&mut inner, &mut crop, &mut whole, &mut before, &mut unseen, &mut local] {
                runtime.free(buffer)?;
            }
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// A kernel without buffers is dispatched, and no descriptor is written for it.
    a_kernel_without_buffers_is_dispatched {
        defects: ["W3"], entry_points: ["vkCmdDispatch", "vkUpdateDescriptorSets"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let nothing = Launch { kernel: &IDLE, buffers: &[], scalars: &[], groups: [1, 1, 1] };
            runtime.dispatch(context, &nothing)?;
            let seen = Seen::now();
            ensure_eq!((seen.bound.len(), seen.constants.len(), seen.submissions), (0, 0, 1), "descriptors, constants and submissions");
            one_dispatch(application, context)?;
            runtime.dispatch(context, &nothing)?;
            let seen = Seen::now();
            ensure_eq!((seen.bound.len(), seen.submissions), (2, 3), "descriptors and submissions with one of two buffers between");
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// Before each dispatch is recorded that it sees what shaders and copies wrote before it, and does not write over what they still read; after it, that the host sees what it wrote.
    what_was_written_is_seen_by_the_next_dispatch {
        defects: ["W3"], entry_points: ["vkCmdPipelineBarrier", "vkCmdDispatch"],
    } (session) {
        embedded(session, SMALL, |application| {
            let (context, allocator) = adopted(application)?;
            one_dispatch(application, context)?;
            one_dispatch(application, context)?;
            let recorded = Seen::now().recorded;
            let dispatches: Vec<usize> = (0..recorded.len()).filter(|at| recorded[*at] == Recorded::Dispatch).collect();
            ensure_eq!(dispatches.len(), 2, "dispatches");
            for at in dispatches {
                let before = at.checked_sub(1).and_then(|before| recorded.get(before));
                ensure!(before.is_some_and(Recorded::shows_shaders), "before the dispatch at {at} of {recorded:?}");
                ensure!(recorded.get(at + 1).is_some_and(Recorded::shows_the_host), "after the dispatch at {at} of {recorded:?}");
            }
            Ok(application.runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// A buffer that is longer than a descriptor may be is refused before the driver, as is one that fits no type of memory; neither leaves anything.
    what_no_descriptor_and_no_memory_can_be_is_refused {
        defects: ["W3"], entry_points: ["vkGetBufferMemoryRequirements", "vkGetPhysicalDeviceProperties"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let mut result = owned(runtime, context, 64)?;
            let most = u64::from(application.limits().max_storage_buffer_range);
            let mut long = Buffer::new(most / 4 * 4 + 4);
            runtime.allocate(context, &mut long, Usage::DeviceLocal)?;
            let submissions = Seen::now().submissions;
            let refused = affine(application, context, [&long, &result], [1, 0]);
            let bytes = long.bytes();
            ensure!(
                matches!(refused, Err(Error::TooLong { index: 0, bytes: told, most: limit }) if (told, limit) == (bytes, most)),
                "{bytes} bytes, a descriptor {most} at most, answered {refused:?}"
            );
            ensure_eq!(Seen::now().submissions, submissions, "submissions");
            let mut fits = runtime.crop(&long, 0, 64)?;
            affine(application, context, [&fits, &result], [1, 0])?;
            for buffer in [&mut fits, &mut long, &mut result] {
                runtime.free(buffer)?;
            }
            Seen::say_no_types(true);
            for usage in [Usage::HostVisible, Usage::DeviceLocal] {
                let mut nowhere = Buffer::new(64);
                let made = Seen::now().memory_made;
                let refused = runtime.allocate(context, &mut nowhere, usage);
                ensure!(matches!(refused, Err(Error::NoMemoryType { usage: told, allowed: 0 }) if told == usage), "no type for {usage:?} answered {refused:?}");
                ensure_eq!((nowhere.region(), Seen::now().memory_made), (None, made), "what was made of it");
            }
            Seen::say_no_types(false);
            let mut again = owned(runtime, context, 64)?;
            runtime.free(&mut again)?;
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// What is wrapped, and a crop of it, cannot be mapped; device-local memory is not seen; only what was wrapped is detached;
    /// a buffer that stands for something takes nothing else. The application's VkBuffer is there after all of it.
    wrapped_buffers_are_notes_about_the_applications {
        entry_points: ["vkMapMemory", "vkDestroyBuffer"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let own = application.buffer(256)?;
            own.write(0, &[9; 256]);
            let mut wrapped = Buffer::new(128);
            runtime.wrap_buffer(context, &mut wrapped, own.foreign(), 64)?;
            let twice = runtime.wrap_buffer(context, &mut wrapped, own.foreign(), 0);
            ensure!(matches!(twice, Err(Error::HasRegion { region }) if Some(region) == wrapped.region()), "wrapping twice answered {twice:?}");
            let over = runtime.allocate(context, &mut wrapped, Usage::DeviceLocal);
            ensure!(matches!(over, Err(Error::HasRegion { .. })), "allocating over it answered {over:?}");
            let mut crop = runtime.crop(&wrapped, 1, 5)?;
            for (buffer, promised) in [(&wrapped, Ownership::Wrapped), (&crop, Ownership::CropAlias)] {
                let (written, read) = (runtime.write(buffer, 0, &[1]), runtime.read(buffer, 0, &mut [0]));
                for answer in [written, read] {
                    ensure!(matches!(answer, Err(Error::NotMappable { ownership, .. }) if ownership == promised), "mapping {promised:?} answered {answer:?}");
                }
            }
            let mut local = Buffer::new(128);
            runtime.allocate(context, &mut local, Usage::DeviceLocal)?;
            let unseen = runtime.read(&local, 0, &mut [0]);
            ensure!(matches!(unseen, Err(Error::NotVisible { .. })), "reading device-local memory answered {unseen:?}");
            for (buffer, promised) in [(&mut local, Ownership::Owned), (&mut crop, Ownership::CropAlias)] {
                let kept = runtime.detach(buffer);
                ensure!(matches!(kept, Err(Error::NotWrapped { ownership, .. }) if ownership == promised), "detaching {promised:?} answered {kept:?}");
            }
            let under = runtime.detach(&mut wrapped);
            ensure!(matches!(under, Err(Error::HasCrops { .. })), "detaching under a crop answered {under:?}");
            runtime.free(&mut crop)?;
            ensure_eq!(runtime.detach(&mut wrapped)?, (own.raw(), 64), "what is detached");
            let nothing = runtime.get_buffer(&wrapped);
            ensure!(matches!(nothing, Err(Error::NoRegion)), "a detached buffer answered {nothing:?}");
            runtime.wrap_buffer(context, &mut wrapped, own.foreign(), 0)?;
            runtime.copy(&wrapped, &local)?;
            runtime.free(&mut wrapped)?;
            runtime.free(&mut local)?;
            ensure_eq!(own.read(0, 256), [9; 256], "the application's buffer");
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// What cannot be is refused before the driver is asked: ranges beyond a buffer, no bytes, overlapping copies, words that
    /// do not begin at words, other contexts' buffers, counts that are not the kernel's, code that is no SPIR-V.
    what_cannot_be_is_refused_before_the_driver {
        entry_points: ["vkCreateShaderModule", "vkQueueSubmit"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let (other, others) = adopted(application)?;
            let own = application.buffer(256)?;
            let (mut first, mut foreign) = (Buffer::new(256), Buffer::new(256));
            runtime.wrap_buffer(context, &mut first, own.foreign(), 0)?;
            runtime.wrap_buffer(other, &mut foreign, own.foreign(), 0)?;
            let mut odd = runtime.crop(&first, 1, 64)?;
            let mut even = runtime.crop(&first, 128, 64)?;
            let mut beside = runtime.crop(&first, 96, 64)?;
            for (start, length) in [(0, 257), (256, 1), (u64::MAX, 2)] {
                let beyond = runtime.crop(&first, start, length);
                ensure!(matches!(beyond, Err(Error::OutOfRange { .. })), "a crop of {length} bytes from {start} on answered {beyond:?}");
            }
            let empty = runtime.allocate(context, &mut Buffer::new(0), Usage::DeviceLocal);
            ensure!(matches!(empty, Err(Error::Empty)), "a buffer of no bytes answered {empty:?}");
            let far = runtime.wrap_buffer(context, &mut Buffer::new(2), own.foreign(), u64::MAX);
            ensure!(matches!(far, Err(Error::OutOfRange { .. })), "an offset without end answered {far:?}");
            let over = runtime.wrap_buffer(context, &mut Buffer::new(256), own.foreign(), 1);
            ensure!(matches!(over, Err(Error::OutOfRange { start: 1, bytes: 256, within: 256 })), "a byte beyond the VkBuffer answered {over:?}");
            let null = runtime.wrap_buffer(context, &mut Buffer::new(4), no_buffer(), 0);
            ensure!(matches!(null, Err(Error::Null { which: "VkBuffer" })), "NULL for a VkBuffer answered {null:?}");
            let overlap = runtime.copy(&even, &beside);
            ensure!(matches!(overlap, Err(Error::Overlap)), "an overlapping copy answered {overlap:?}");
            let launch = |kernel, buffers: &[&Buffer], scalars: &[u32], groups| {
                runtime.dispatch(context, &Launch { kernel, buffers, scalars, groups })
            };
            let one = [1; 3];
            let misaligned = launch(&REVERSE, &[&odd, &even], &[1], one);
            ensure!(matches!(misaligned, Err(Error::Misaligned { index: 0, offset: 1, .. })), "half words answered {misaligned:?}");
            let strange = launch(&REVERSE, &[&even, &foreign], &[1], one);
            ensure!(matches!(strange, Err(Error::ForeignRegion { index: 1, .. })), "another context's buffer answered {strange:?}");
            let few = launch(&REVERSE, &[&even], &[1], one);
            ensure!(matches!(few, Err(Error::Count { what: "buffers", wanted: 2, given: 1 })), "a buffer too few answered {few:?}");
            let many = launch(&REVERSE, &[&even, &beside], &[1, 2], one);
            ensure!(matches!(many, Err(Error::Count { what: "scalars", .. })), "a scalar too many answered {many:?}");
            let huge = launch(&REVERSE, &[&even, &beside], &[1], [1, u32::MAX, 1]);
            ensure!(matches!(huge, Err(Error::TooMany { what: "workgroups of y", .. })), "a grid without end answered {huge:?}");
            let text = embedder::Kernel { words: &[0x7665_7268, 1, 2], ..REVERSE };
            let not_spirv = launch(&text, &[&even, &beside], &[1], one);
            ensure!(matches!(not_spirv, Err(Error::NotSpirv { words: 3 })), "text answered {not_spirv:?}");
            let wide = embedder::Kernel { buffers: 5, ..REVERSE };
            let wide = launch(&wide, &[&even, &beside], &[1], one);
            ensure!(matches!(wide, Err(Error::TooMany { what: "buffers", asked: 5, .. })), "five buffers answered {wide:?}");
            let seen = Seen::now();
            ensure_eq!((seen.modules_made, seen.submissions), (0, 0), "modules made and submissions");
            for buffer in [&mut odd, &mut even, &mut beside, &mut first, &mut foreign] {
                runtime.free(buffer)?;
            }
            runtime.release_memory_allocator(context, allocator)?;
            Ok(runtime.release_memory_allocator(other, others)?)
        })
    }
}
