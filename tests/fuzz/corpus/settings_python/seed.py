lr = 0.1
model = dict(layers=[1, 2], size=2 * 64)
name = f'{lr}'
