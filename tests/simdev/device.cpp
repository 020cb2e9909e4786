// The simulated accelerator as torch's PrivateUse1. Each operator is one kernel: its shapes come from the meta device at
// once, its numbers from the CPU's kernel, later, on the stream.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/TensorUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "memory.h"
#include "rows.h"

namespace sim {

using at::Tensor;
using c10::IValue;
using Stack = torch::jit::Stack;

// ---------------------------------------------------------------- what torch asks of a device

struct Allocator final : c10::Allocator {
  static void drop(void* at) { memory().release(static_cast<char*>(at)); }
  c10::DataPtr allocate(size_t bytes) override {
    void* at = memory().allocate(bytes);
    return {at, at, &drop, c10::Device(DEVICE, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void*, const void*, std::size_t) const override { TORCH_CHECK(false, "sim: copy_data"); }
};
static Allocator allocator;
REGISTER_ALLOCATOR(DEVICE, &allocator);

struct PinnedAllocator final : at::HostAllocator {
  static void drop(void* at) { pinned().release(at); }
  c10::DataPtr allocate(size_t bytes) override {
    void* at = pinned().allocate(bytes);
    return {at, at, &drop, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};
static PinnedAllocator pinned_allocator;
static at::HostAllocatorRegistry<DEVICE> pinned_registry(&pinned_allocator);

static c10::Stream stream_of(int64_t number) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(DEVICE, 0), number);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return DEVICE; }
  c10::Device exchangeDevice(c10::Device) const override { return {DEVICE, 0}; }
  c10::Device getDevice() const override { return {DEVICE, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return stream_of(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getNewStream(c10::Device, int) const override {
    static std::atomic<int> next{0};
    return stream_of(1 + next++ % (STREAMS - 1));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = getStream({DEVICE, 0});
    current_stream = stream.id();
    return before;
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    delete static_cast<Event*>(*event);
    *event = new Event(record_event(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) wait_for_event(*static_cast<Event*>(event), stream.id());
  }
  bool queryEvent(void* event) const override {
    auto* found = static_cast<Event*>(event);
    return !found || queue(found->stream).is_done(found->ticket);
  }
  void synchronizeEvent(void* event) const override {
    auto* found = static_cast<Event*>(event);
    if (found) host_waits("event.synchronize", [=] { queue(found->stream).wait(found->ticket); });
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const c10::Stream& stream) const override {
    return queue(stream.id()).is_done(queue(stream.id()).last());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_for_stream("stream.synchronize", stream.id());
  }
  void synchronizeDevice(const c10::DeviceIndex) const override { wait_for_all("synchronize"); }
  bool isStreamCapturing(const c10::Stream& stream) const override { return bool(queue(stream.id()).capture); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    memory().note_user(data.get(), stream.id());
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Random numbers: as on a GPU, a seed and how many kernels have drawn. Each such kernel has a generator of its own.
static std::atomic<uint64_t> seed{0}, drawn{0};
static at::Generator* generator;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::Device getDeviceFromPtr(void*) const override { return {DEVICE, 0}; }
  bool isPinnedPtr(const void* at) const override { return pinned().holds(at); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return *generator; }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::make_generator<at::CPUGeneratorImpl>(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override;
};

// ---------------------------------------------------------------- tensors and views

static bool is_sim(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == DEVICE; }

// The same elements as a tensor of the CPU, for kernels alone.
static Tensor on_host(const Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  auto* at = static_cast<char*>(host_address(storage->data())) + tensor.storage_offset() * tensor.itemsize();
  if (!storage->nbytes()) at = nullptr;
  return at::from_blob(at, tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.scalar_type()));
}

// The same for a kernel that is launched now: the order of the stream alone keeps the memory, as on a real device; that
// of a captured graph is kept as long as the graph.
static Tensor seen(const Tensor& tensor) {
  if (auto& graph = queue(current_stream).capture) graph->memory.push_back(tensor.storage());
  return on_host(tensor);
}

static Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                            std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::kFloat));
}
static Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                    std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat),
                                   format);
}
static Tensor new_like(const Tensor& form) {
  return at::detail::empty_strided_generic(form.sizes(), form.strides(), &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), form.scalar_type());
}
static Tensor as_strided(const Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<c10::SymInt> offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                       tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset.value_or(tensor.sym_storage_offset()));
  return view;
}
static Tensor view(const Tensor& tensor, c10::SymIntArrayRef size) {
  auto sizes = at::infer_size_dv(C10_AS_INTARRAYREF_SLOW(size), tensor.numel());
  auto strides = at::detail::computeStride(tensor.sizes(), tensor.strides(), sizes);
  TORCH_CHECK(strides.has_value(), "view size is not compatible with input tensor's size and stride");
  return as_strided(tensor, c10::fromIntArrayRefSlow(sizes), c10::fromIntArrayRefSlow(*strides), std::nullopt);
}
static Tensor reshape_alias(const Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return as_strided(tensor, size, stride, std::nullopt);
}
static Tensor unfold(const Tensor& tensor, int64_t dim, int64_t size, int64_t step) {
  auto form = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  auto seen = form.unfold(dim, size, step);
  return as_strided(tensor, seen.sym_sizes(), seen.sym_strides(), std::nullopt);
}
static Tensor alias(const Tensor& tensor) {
  return as_strided(tensor, tensor.sym_sizes(), tensor.sym_strides(), std::nullopt);
}
static Tensor view_dtype(const Tensor& tensor, at::ScalarType dtype) {
  auto form = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta)).view(dtype);
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                       tensor.key_set(), c10::scalarTypeToTypeMeta(dtype));
  int64_t bytes = tensor.storage_offset() * int64_t(tensor.itemsize());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(form.sizes(), form.strides(), bytes / int64_t(form.itemsize()));
  return view;
}
static Tensor& set_storage(Tensor& tensor, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size,
                           c10::SymIntArrayRef stride) {
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, std::move(offset));
  return tensor;
}
static void grow(c10::StorageImpl* storage, size_t bytes) {
  if (bytes <= storage->nbytes()) return;
  TORCH_CHECK(!storage->nbytes(), "sim: a storage with content cannot grow");
  storage->set_data_ptr_noswap(allocator.allocate(bytes));
  storage->set_nbytes(bytes);
}
void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const {
  auto* found = storage.unsafeGetStorageImpl();
  if (!bytes) found->set_data_ptr_noswap(allocator.allocate(0));
  if (bytes < found->nbytes()) found->set_nbytes(bytes);
  grow(found, bytes);
}
static const Tensor& resize(const Tensor& tensor, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* found = tensor.unsafeGetTensorImpl();
  found->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  grow(found->storage().unsafeGetStorageImpl(), (found->numel() + found->storage_offset()) * found->itemsize());
  return tensor;
}
static void record_stream(Tensor& tensor, c10::Stream stream) {
  memory().note_user(tensor.storage().unsafeGetStorageImpl()->mutable_data(), stream.id());
}

// ---------------------------------------------------------------- copies, and values the host asks for

static at::Scalar local_scalar(const Tensor& tensor) {
  wait_for_stream("aten::_local_scalar_dense", current_stream);
  return on_host(tensor).item();
}
static Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (is_sim(from) && is_sim(to)) {
    launch("aten::copy_", [from = seen(from), to = seen(to)] { to.copy_(from); });
  } else if (is_sim(from)) {
    bool waits = !non_blocking || !pinned().holds(to.data_ptr());
    launch("copy to host", [from = seen(from), to] { to.copy_(from); });
    if (waits) wait_for_stream("copy to host", current_stream);
  } else {
    bool is_pinned = pinned().holds(from.data_ptr());
    auto kept = is_pinned ? from : from.clone();
    launch("copy to device", [kept, to = seen(to)] { to.copy_(kept); });
    if (!non_blocking) wait_for_stream("copy to device", current_stream);
  }
  return to;
}
static Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) { return copy_from(from, to, false); }

// ---------------------------------------------------------------- all other operators

// No mode and no subclass of the program sees into a kernel.
struct Inside {
  at::impl::TorchFunctionDisabledState before = at::impl::PythonTorchFunctionTLS::get_disabled_state();
  c10::impl::ExcludeDispatchKeyGuard keys{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
  Inside() { at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED); }
  ~Inside() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before); }
};

template <class Change>
static IValue mapped(const IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& one : value.toTensorList()) list.push_back(change(one));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& one : value.toOptionalTensorList())
      list.push_back(one.has_value() ? std::optional<Tensor>(change(*one)) : std::nullopt);
    return list;
  }
  return value;
}
template <class Change>
static Stack mapped(const Stack& values, c10::DeviceType type, const Change& change) {
  Stack found;
  for (const auto& value : values)
    found.push_back(value.isDevice() ? IValue(c10::Device(type)) : mapped(value, change));
  return found;
}
static Tensor host_or_same(const Tensor& tensor) { return is_sim(tensor) ? seen(tensor) : tensor; }
static Tensor form_of(const Tensor& tensor) {
  if (!is_sim(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}
static void copy_results(const IValue& to, const IValue& from) {
  if (to.isTensor()) {
    if (to.toTensor().defined() && from.toTensor().defined()) to.toTensor().copy_(from.toTensor());
  } else if (to.isTensorList()) {
    auto ours = to.toTensorVector(), theirs = from.toTensorVector();
    for (size_t i = 0; i < ours.size(); ++i) copy_results(ours[i], theirs[i]);
  }
}

static bool is_generator(const c10::Argument& formal) {
  auto type = formal.type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}
static bool draws(const c10::OperatorHandle& op) {
  const auto& formal = op.schema().arguments();
  return std::any_of(formal.begin(), formal.end(), is_generator);
}
// The numbers that the kernel draws are settled by the seed and by how many drew before.
static void with_generator(const c10::OperatorHandle& op, Stack& values, uint64_t number) {
  const auto& formal = op.schema().arguments();
  for (size_t i = 0; i < formal.size(); ++i)
    if (is_generator(formal[i]))
      values[i] = at::make_generator<at::CPUGeneratorImpl>(seed * 0x9E3779B97F4A7C15ull + number);
}

static void fallback(const c10::OperatorHandle& op, Stack* stack) {
  Inside inside;
  const auto& schema = op.schema();
  const auto& formal = schema.arguments();
  const std::string name = schema.name();
  size_t count = formal.size(), results = schema.returns().size();
  Stack given(stack->end() - count, stack->end());
  torch::jit::drop(*stack, count);
  for (auto& value : given)  // what is on the host is read now; a number stays one
    if (value.isTensor() && value.toTensor().defined() && !is_sim(value.toTensor()) &&
        !value.toTensor().unsafeGetTensorImpl()->is_wrapped_number())
      value = value.toTensor().clone();

  // The argument that a result is, if it is one.
  auto argument_of = [&](size_t result) -> const IValue* {
    const auto* alias = schema.returns()[result].alias_info();
    if (!alias || !alias->isWrite()) return nullptr;
    for (size_t i = 0; i < count; ++i) {
      const auto* other = formal[i].alias_info();
      if (other && other->isWrite() && other->beforeSet() == alias->beforeSet()) return &given[i];
    }
    return nullptr;
  };
  uint64_t number = draws(op) ? drawn++ : 0;

  Stack forms = mapped(given, c10::DeviceType::Meta, form_of);
  bool known = name != "aten::equal";
  if (known) {
    for (auto& value : forms)
      if (value.isGenerator()) value = IValue();
    try {
      op.callBoxed(forms);
    } catch (const std::exception&) {
      known = false;
    }
  }
  if (!known) {  // what comes out depends on values: the host waits, as for a GPU
    wait_for_all(name);
    Stack values = mapped(given, c10::DeviceType::CPU, host_or_same);
    with_generator(op, values, number);
    op.callBoxed(values);
    for (size_t i = 0; i < results; ++i) {
      const IValue* argument = argument_of(i);
      IValue found = argument ? *argument : mapped(values[i], [](const Tensor& tensor) {
        if (!tensor.defined()) return tensor;
        auto made = new_like(tensor);
        on_host(made).copy_(tensor);
        return made;
      });
      stack->push_back(found);
    }
    return;
  }
  Stack made;
  for (size_t i = 0; i < results; ++i) {
    if (const IValue* argument = argument_of(i)) {
      if (forms[i].isTensor() && forms[i].toTensor().sizes() != argument->toTensor().sizes())
        resize(argument->toTensor(), forms[i].toTensor().sym_sizes(), std::nullopt);
      made.push_back(*argument);
    } else {
      made.push_back(mapped(forms[i], [](const Tensor& form) { return form.defined() ? new_like(form) : form; }));
    }
  }
  Stack values = mapped(given, c10::DeviceType::CPU, host_or_same), targets;
  for (size_t i = 0; i < results; ++i)
    targets.push_back(argument_of(i) ? IValue() : mapped(made[i], host_or_same));
  launch(name, [op, values = std::move(values), targets = std::move(targets), number] {
    Stack stack = values;
    with_generator(op, stack, number);
    at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(stack);
    for (size_t i = 0; i < targets.size(); ++i) copy_results(targets[i], stack[i]);
  });
  for (auto& value : made) stack->push_back(value);
}

// ---------------------------------------------------------------- convolutions, which have no fallback

static Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                          at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                          at::IntArrayRef output_padding, int64_t groups) {
  Inside inside;
  std::vector<int64_t> s = stride.vec(), p = padding.vec(), d = dilation.vec(), o = output_padding.vec();
  auto work = [=](auto&& change) {
    auto added = bias.has_value() ? std::optional<Tensor>(change(*bias)) : std::nullopt;
    return [=, x = change(input), w = change(weight)] {
      return at::convolution(x, w, added, s, p, d, transposed, o, groups);
    };
  };
  auto made = new_like(work(form_of)());
  launch("aten::convolution", [compute = work(seen), to = seen(made)] {
    at::AutoDispatchBelowADInplaceOrView below;
    to.copy_(compute());
  });
  return made;
}
static std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& input, const Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  Inside inside;
  std::vector<int64_t> s = stride.vec(), p = padding.vec(), d = dilation.vec(), o = output_padding.vec();
  std::vector<int64_t> channels{gradient.size(1)};
  auto made = [&](bool is_wanted, at::IntArrayRef sizes) {
    return is_wanted ? at::empty(sizes, input.options()) : Tensor();
  };
  Tensor first = made(wanted[0], input.sizes()), second = made(wanted[1], weight.sizes()), third = made(wanted[2], channels);
  auto target = [](const Tensor& tensor) { return tensor.defined() ? seen(tensor) : tensor; };
  launch("aten::convolution_backward", [=, g = seen(gradient), x = seen(input), w = seen(weight), a = target(first),
                                        b = target(second), c = target(third)] {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [ga, gb, gc] = at::convolution_backward(g, x, w, channels, s, p, d, transposed, o, groups, wanted);
    copy_results(a, ga);
    copy_results(b, gb);
    copy_results(c, gc);
  });
  return {first, second, third};
}

// The one operator that draws random numbers and takes no generator.
static std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double share, std::optional<bool> train) {
  auto mask = at::empty(input.sizes(), input.options().dtype(at::kBool));
  if (train.has_value() && !*train) return {input.clone(), mask.fill_(true)};
  mask.bernoulli_(1 - share);
  return {input.mul(mask).mul_(share < 1 ? 1 / (1 - share) : 0), mask};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("view.dtype", &view_dtype);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &unfold);
  m.impl("alias", &alias);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("resize_", &resize);
  m.impl("record_stream", &record_stream);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("native_dropout", &native_dropout);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}
TORCH_LIBRARY_IMPL(msprobe, PrivateUse1, m) {
  m.impl("row_numbers", [](const Tensor& values, Tensor numbers) { launch_rows(values, numbers, seen); });
}
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// For work of Python on the current stream: what it is given lies on the host, as kernels see it.
static void enqueue_call(const std::string& what, pybind11::function work, std::vector<Tensor> tensors) {
  auto* held = new pybind11::function(std::move(work));  // let go of with the interpreter's lock
  std::vector<Tensor> given;
  for (const auto& tensor : tensors) given.push_back(seen(tensor));
  launch(what, [held, given = std::move(given)] {
    pybind11::gil_scoped_acquire gil;
    try {
      (*held)(given);
    } catch (pybind11::error_already_set& error) {
      fprintf(stderr, "sim: %s failed: %s\n", "a call on a stream", error.what());
    }
    delete held;
  });
}

static void replace(pybind11::object*& kept, const pybind11::object& value) {
  kept = value.is_none() ? nullptr : new pybind11::object(value);
}

PYBIND11_MODULE(simdev_device, m) {
  generator = new at::Generator(at::make_generator<at::CPUGeneratorImpl>());
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  pybind11::class_<Graph, std::shared_ptr<Graph>>(m, "Graph").def_property_readonly("kernels", [](const Graph& graph) {
    return graph.work.size();
  });
  m.def("enqueue", &enqueue_call);
  m.def("begin_capture", &begin_capture);
  m.def("end_capture", &end_capture);
  m.def("replay", &replay);
  m.def("is_capturing", [] { return bool(queue(current_stream).capture); });
  m.def("current_stream", [] { return current_stream; });
  m.def("synchronize", [] { wait_for_all("synchronize"); });
  m.def("waits", [] { return counts().waits.load(); });
  m.def("launches", [] { return counts().launches.load(); });
  m.def("on_wait", [](pybind11::object whom) { replace(counts().on_wait, whom); });
  m.def("on_launch", [](pybind11::object whom) { replace(counts().on_launch, whom); });
  m.def("waiting_is_error", [](bool is_error) { counts().waiting_is_error = is_error; });
  m.def("break_next", [](std::string what) { counts().breaks = new std::string(std::move(what)); });
  m.def("slow_down", [](long microseconds) { counts().slow_us = microseconds; });
  m.def("allocated", [] { return memory().allocated; });
  m.def("peak", [] { return memory().peak; });
  m.def("reset_peak", [] { memory().peak = memory().allocated; });
  m.def("limit", [](size_t bytes) { memory().limit = bytes ? bytes : Memory::RANGE; });
  m.def("offer_rows", [](bool is_right) { offered_rows = is_right ? Offer::right : Offer::wrong; });
  m.def("pinned_bytes", [] { return pinned().bytes; });
  m.def("random_state", [] { return std::make_pair(seed.load(), drawn.load()); });
  m.def("set_random_state", [](uint64_t first, uint64_t second) { seed = first; drawn = second; });
}

}  // namespace sim
