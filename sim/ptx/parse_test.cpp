// What is refused, and where the message points.
#include <gtest/gtest.h>

#include "sim/ptx/test_device.h"

namespace tensor_fusion::sim::ptx {
namespace {

const std::string kHead = ".version 7.0\n.target sm_75\n.address_size 64\n";

std::string in_kernel(const std::string& body) {
  return kHead +
         ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<8>;\n.reg .f32 "
         "%f<4>;\n.reg .b64 %rd<4>;\n" +
         body + "\nret;\n}\n";
}

ParseError error_of(const std::string& text, int capability = 90) {
  const auto module = parse(text, {.device_capability = capability});
  return module ? ParseError{} : module.error();
}

TEST(Parse, names_the_line_and_column_of_an_unsupported_instruction) {
  const ParseError error = error_of(in_kernel("  wgmma.fence.sync.aligned;"));
  EXPECT_EQ(error.line, 11);
  EXPECT_EQ(error.column, 3);
  EXPECT_EQ(error.message, "unsupported instruction 'wgmma.fence.sync.aligned'");
  EXPECT_EQ(error.render(),
            "ptxas application ptx input, line 11; error   : unsupported instruction 'wgmma.fence.sync.aligned'\n"
            "ptxas fatal   : Ptx assembly aborted due to errors\n");
}

TEST(Parse, refuses_text_for_a_newer_device) {
  EXPECT_EQ(error_of(kHead, 70).message, "SM version specified by .target is higher than the device's sm_70");
  EXPECT_TRUE(error_of(kHead, 75).message.empty());
  EXPECT_TRUE(error_of(".version 8.0\n.target sm_90a, debug\n.address_size 64\n").message.empty());
}

TEST(Parse, refuses_what_is_no_module) {
  EXPECT_FALSE(error_of("").message.empty());
  EXPECT_FALSE(error_of("hello").message.empty());
  EXPECT_FALSE(error_of(kHead + ".address_size").message.empty());
  EXPECT_FALSE(error_of(kHead + ".visible .entry k(").message.empty());
  EXPECT_FALSE(error_of(kHead + ".visible .entry k() {").message.empty());
  EXPECT_FALSE(error_of(kHead + ".global .align 3 .b8 x[4];").message.empty());
  EXPECT_FALSE(error_of(kHead + ".global .b8 x[99999999999999];").message.empty());
  EXPECT_FALSE(error_of(kHead + "/* no end").message.size() > 200);
}

TEST(Parse, refuses_names_and_operands_that_do_not_fit) {
  const auto message = [](const std::string& body) { return error_of(in_kernel(body)).message; };
  EXPECT_EQ(message("mov.u32 %r1, %nothing;"), "Unknown symbol '%nothing'");
  EXPECT_EQ(message("mov.u32 %r9, 0;"), "Unknown symbol '%r9'");
  EXPECT_EQ(message("bra L;"), "Label 'L' is not defined");
  EXPECT_EQ(message("L: L: ret;"), "duplicate label 'L'");
  EXPECT_EQ(message("add.u32 %r1, %r2;"), "Arguments mismatch for instruction 'add'");
  EXPECT_EQ(message("add.u64 %rd1, %r1, %rd2;"), "Arguments mismatch for instruction 'add'");
  EXPECT_EQ(message("add.u32 %p1, %r1, %r2;"), "Arguments mismatch for instruction 'add'");
  EXPECT_EQ(message("add.f32.weird %f1, %f2, %f3;"), "unsupported modifier '.weird' of instruction 'add.f32.weird'");
  EXPECT_EQ(message("ld.global.u32 %r1, %rd1;"), "an address in [ ] is expected");
  EXPECT_EQ(message("st.param.u32 [p], %r1;"), "a kernel cannot store to its parameters");
  EXPECT_EQ(message("ld.param.u64 %rd1, [p+8];"), "address is out of the parameters");
  EXPECT_EQ(message("@%r1 ret;"), "a guard must be a predicate, not '%r1'");
  EXPECT_EQ(message("lop3.b32 %r1, %r2, %r3, %r4, 300;"), "lop3 needs a table from 0 to 255");
}

// What a matrix is loaded into, an effect writes later without looking at it again.
TEST(Parse, refuses_registers_and_sums_that_do_not_fit_a_matrix) {
  const auto message = [](const std::string& body) {
    const ParseError error = error_of(in_kernel("  " + body));
    EXPECT_EQ(error.line, 11) << body;
    EXPECT_GT(error.column, 0) << body;
    return error.message;
  };
  const std::string four = "{%r1, %r2, %r3, %r4}", wide = "{%rd1, %rd2}", narrow = "{%r1, %r2}";
  const std::string load = "wmma.load.", store = "wmma.store.d.sync.aligned.row.",
                    mma = "wmma.mma.sync.aligned.row.col.";
  EXPECT_EQ(error_of(in_kernel(load + "a.sync.aligned.row.m8n8k4.f64 %rd1, [%rd2];")).message, "");
  EXPECT_EQ(message(load + "a.sync.aligned.row.m8n8k4.f64 %r1, [%rd2];"), "a 64-bit register is expected");
  EXPECT_EQ(message(load + "c.sync.aligned.row.m8n8k4.f64 " + narrow + ", [%rd2];"), "a 64-bit register is expected");
  EXPECT_EQ(message(load + "c.sync.aligned.row.m8n8k32.s32 " + wide + ", [%rd2];"), "a 32-bit register is expected");
  EXPECT_EQ(message(store + "m8n8k4.f64 [%rd2], " + narrow + ";"), "a 64-bit register is expected");
  EXPECT_EQ(message(mma + "m8n8k4.rn.f64.f64.f64.f64 " + narrow + ", %rd1, %rd2, " + wide + ";"),
            "a 64-bit register is expected");
  EXPECT_EQ(message(mma + "m8n8k4.rn.f64.f64.f64.f64 " + wide + ", %r1, %rd2, " + wide + ";"),
            "a 64-bit register is expected");
  EXPECT_EQ(message("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 " + narrow + ", %rd1, %rd2, " + wide + ";"),
            "a 64-bit register is expected");
  EXPECT_EQ(message("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 " + wide + ", %r1, %r2, " + narrow + ";"),
            "a 32-bit register is expected");
  EXPECT_EQ(message("ldmatrix.sync.aligned.m8n8.x1.shared.b16 %rd1, [%r1];"), "a 32-bit register is expected");
  const auto unsupported = [](const std::string& opcode) { return "unsupported instruction '" + opcode + "'"; };
  for (const std::string& opcode :
       {load + "c.sync.aligned.row.m8n8k128.b1", load + "c.sync.aligned.row.m8n8k4.f32",
        load + "c.sync.aligned.row.m16n16k8.s32", load + "a.sync.aligned.row.m16n16k16.f32"})
    EXPECT_EQ(message(opcode + " " + four + ", [%rd2];"), unsupported(opcode));
  EXPECT_EQ(message(store + "m8n8k32.s4 [%rd2], %r1;"), unsupported(store + "m8n8k32.s4"));
  for (const std::string& opcode :
       {mma + "m8n8k128.b1.b1.b1.b1", mma + "m8n8k32.s32.s4.s4.f32", mma + "m8n8k32.f16.s4.s4.s32",
        mma + "m16n16k16.s32.f16.f16.f32", mma + "m16n16k16.f32.f16.bf16.f32", mma + "m16n16k8.f16.tf32.tf32.f32"})
    EXPECT_EQ(message(opcode + " " + four + ", %r1, %r2, " + four + ";"), unsupported(opcode));
}

TEST(Parse, refuses_a_call_of_what_is_not_there) {
  const std::string text =
      kHead + ".extern .func (.param .b32 r) missing(.param .b32 a);\n" +
      in_kernel("{.param .b32 a0;\n.param .b32 r0;\nst.param.b32 [a0], %r1;\ncall.uni (r0), missing, (a0);\n}")
          .substr(kHead.size());
  EXPECT_EQ(error_of(text).message, "Unresolved extern function 'missing'");
}

TEST(Parse, describes_kernels_and_globals) {
  const auto module = parse(kHead +
                                ".visible .global .align 4 .u32 numbers[4] = {1, 2, 0x10, -1};\n"
                                ".const .align 8 .u64 where = generic(numbers)+8;\n.global .f32 half = "
                                "0f3F000000;\n.extern .shared .align 16 .b8 dynamic[];\n"
                                ".visible .entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20])\n.maxntid "
                                "64, 2\n.minnctapersm 1\n"
                                "{\n.reg .b32 %r<3>;\n.shared .b32 own[5];\n.local .b64 here[3];\nmov.u32 %r1, "
                                "own;\nmov.u32 %r2, dynamic;\nst.shared.u32 [%r2], %r1;\nret;\n}\n",
                            {});
  ASSERT_TRUE(module) << module.error().render();
  const Kernel& kernel = *(*module)->find_kernel("k");
  EXPECT_EQ(kernel.parameters[1].offset, 8U);
  EXPECT_EQ(kernel.parameters[2].offset, 16U);
  EXPECT_EQ(kernel.parameter_bytes, 36U);
  EXPECT_EQ(kernel.shared_bytes, 32U);  // 20, and the dynamic array's alignment
  EXPECT_EQ(kernel.local_bytes, 32U);
  EXPECT_TRUE(kernel.uses_dynamic_shared);
  EXPECT_EQ(*kernel.maxntid, (std::array<std::uint32_t, 3>{64, 2, 1}));
  EXPECT_EQ((*module)->find_global("numbers")->size, 16U);
  EXPECT_TRUE((*module)->find_global("numbers")->visible);
  const std::vector<std::uint64_t> addresses{0x1000, 0x2000, 0x3000};
  const auto bytes = (*module)->initial_bytes(1, addresses);
  std::uint64_t where = 0;
  std::memcpy(&where, bytes.data(), 8);
  EXPECT_EQ(where, 0x1008U);
  EXPECT_EQ((*module)->target(), 75);
}

TEST(Parse, takes_the_files_that_compilers_made) {
  for (const char* name : {"kernels.ptx", "mlp.ptx"}) {
    const auto module = parse(TestDevice::file(name), {});
    ASSERT_TRUE(module) << name << ": " << module.error().render();
    // Cut anywhere, it is refused or taken, and never more than that.
    const std::string text = TestDevice::file(name);
    for (std::size_t cut = 0; cut < text.size(); cut += 97) static_cast<void>(parse(text.substr(0, cut), {}));
  }
}

}  // namespace
}  // namespace tensor_fusion::sim::ptx
