import torch
import torch.nn.functional as F
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False
torch.manual_seed(0)
print(torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version())
for name, cin, cout, k, s, p, size in [("5x5", 48, 64, 5, 1, 2, 35), ("3x3", 64, 96, 3, 1, 1, 35), ("1x1", 192, 64, 1, 1, 0, 35)]:
    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        x = torch.randn(2, cin, size, size, device="cuda", dtype=torch.float64)
        w = (torch.randn(cout, cin, k, k, device="cuda", dtype=torch.float64) / (cin * k * k) ** 0.5)
        out = []
        for dt in (torch.float64, torch.float32):
            xx, ww = x.to(dt).requires_grad_(), w.to(dt).requires_grad_()
            y = F.conv2d(xx, ww, stride=s, padding=p)
            torch.manual_seed(1)
            g = torch.randn(y.shape, device="cuda", dtype=torch.float64).to(dt)
            gx, gw = torch.autograd.grad(y, (xx, ww), g)
            out.append([t.double() for t in (y, gx, gw)])
        print(name, "benchmark" if benchmark else "default", *[f"{n} {((a - b).norm() / a.norm()).item():.1e}" for n, a, b in zip(("y", "gx", "gw"), *out)])
